"""A document as it was read: its text, and which part of it stands under which heading."""

from __future__ import annotations

from dataclasses import dataclass

from host_service.knowledge.errors import DocumentUnreadable

#: What stands between the headings of a path where it is shown as one text.
HEADING_SEPARATOR = " > "

# Deeper headings than HTML and Markdown have.
_DEEPEST = 6
_HEADING_CHARACTERS = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of a document: what stands under one heading, or on one page.

    Attributes:
        position: Where it begins in the document's text, in characters; it ends where the next
            part begins.
        headings: The headings that it stands under, outermost first.
        page: Its page, from 1; None where there are no pages.
    """

    position: int
    headings: tuple[str, ...] = ()
    page: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadDocument:
    """A document that was read.

    Attributes:
        text: All its text: of plain text the file's own, of other kinds what a reader of it sees.
        title: What it calls itself; empty: nothing.
        parts: Its parts in their order; the first begins at 0.
    """

    text: str
    title: str = ""
    parts: tuple[Part, ...] = (Part(position=0),)


class DocumentText:
    """A document's text while it is being read.

    Args:
        most_characters: How long it may become.
    """

    def __init__(self, *, most_characters: int) -> None:
        self._most = most_characters
        self._pieces: list[str] = []
        self._length = 0
        self._parts = [Part(position=0)]
        self._path: list[tuple[int, str]] = []
        # Whether the last part has nothing but headings so far.
        self._is_bare = False

    def add(self, text: str) -> None:
        """Add text.

        Raises:
            DocumentUnreadable: The document has become too long.
        """
        self._length += len(text)
        require_length(self._length, self._most)
        self._pieces.append(text)
        self._is_bare = self._is_bare and not text.strip()

    def add_block(self, text: str) -> None:
        """Add text that stands by itself: a paragraph, a table, some code."""
        if text.strip():
            self.add(text.strip("\n") + "\n\n")

    def add_heading(self, level: int, text: str) -> None:
        """Add a heading; what follows stands under it.

        Args:
            level: 1 for the outermost.
            text: The heading.
        """
        heading = " ".join(text.split())
        if not heading:
            return
        level = min(max(level, 1), _DEEPEST)
        self._path = [each for each in self._path if each[0] < level]
        self._path.append((level, heading[:_HEADING_CHARACTERS]))
        # A heading right behind another makes no part of its own: nobody looks for a heading alone.
        position = self._parts[-1].position if self._is_bare else self._length
        self._begin(Part(position=position, headings=tuple(text for _, text in self._path)))
        self.add(heading + "\n\n")
        self._is_bare = True

    def add_page(self, number: int, text: str) -> None:
        """Add a page."""
        self._begin(Part(position=self._length, page=number))
        self.add_block(text)

    def document(self, *, title: str = "") -> ReadDocument:
        """Return the document as far as it was read."""
        return ReadDocument(
            text="".join(self._pieces),
            title=" ".join(title.split())[:_HEADING_CHARACTERS],
            parts=tuple(self._parts),
        )

    def _begin(self, part: Part) -> None:
        if self._parts[-1].position == part.position:
            self._parts.pop()
        self._parts.append(part)


def require_length(characters: int, most_characters: int) -> None:
    """Raise `DocumentUnreadable` for a text that is too long."""
    if characters > most_characters:
        raise DocumentUnreadable(
            f"it has more than {most_characters} characters of text "
            "(limits.document_characters): split it"
        )
