"""Markdown to text: what a reader of it sees; code as it stands, links by their text."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from markdown_it import MarkdownIt
from markdown_it.token import Token

from host_service.knowledge.document import DocumentText, ReadDocument
from host_service.knowledge.html import text_of_html
from host_service.knowledge.plain_text import decode

# Deeper than people nest lists and quotes; the parser calls itself for each level.
_DEEPEST = 40
_FRONT_MATTER = re.compile(r"\A---[ \t]*\r?\n(.*?)\r?\n(?:---|\.\.\.)[ \t]*(?:\r?\n|\Z)", re.DOTALL)
_TITLE = re.compile(r"^title:[ \t]*(.+?)[ \t]*$", re.MULTILINE)
_TAG = re.compile(r"<[^>]*>")
_CELL_SEPARATOR = " | "


def read_markdown(content: bytes, *, charset: str, most_characters: int) -> ReadDocument:
    """Read Markdown: CommonMark with tables and what is struck out.

    Front matter is no text; its `title` is the document's.

    Args:
        content: The file.
        charset: Its encoding as the one who sent it says; empty: nothing was said.
        most_characters: How long its text may be.

    Raises:
        DocumentUnreadable: It is not text in its encoding, or too long.
    """
    source, title = _without_front_matter(decode(content, charset=charset))
    parser = MarkdownIt("commonmark", {"maxNesting": _DEEPEST}).enable(["table", "strikethrough"])
    page = _Page(DocumentText(most_characters=most_characters))
    page.take(parser.parse(source))
    return page.document(title=title)


def _without_front_matter(source: str) -> tuple[str, str]:
    found = _FRONT_MATTER.match(source)
    if found is None:
        return source, ""
    title = _TITLE.search(found.group(1))
    return source[found.end() :], title.group(1).strip("\"'") if title else ""


class _Page:
    """Takes in blocks in their order."""

    def __init__(self, text: DocumentText) -> None:
        self._text = text
        self._title = ""
        self._heading = 0
        # What begins the lines of each list that is open: its bullet, or None and the next number.
        self._lists: list[int | None] = []
        self._bullet = ""
        self._row: list[str] | None = None

    def take(self, tokens: Sequence[Token]) -> None:
        """Take in some blocks."""
        for token in tokens:
            takes = _TAKES.get(token.type)
            if takes is not None:
                takes(self, token)

    def document(self, *, title: str) -> ReadDocument:
        """Return the document; its first heading is its title where it says no other."""
        return self._text.document(title=title or self._title)

    def open_heading(self, token: Token) -> None:
        self._heading = int(token.tag[1:])

    def close_heading(self, _token: Token) -> None:
        self._heading = 0

    def take_code(self, token: Token) -> None:
        self._text.add_block(token.content)

    def take_markup(self, token: Token) -> None:
        self._text.add_block(text_of_html(token.content))

    def open_bullets(self, _token: Token) -> None:
        self._lists.append(None)

    def open_numbers(self, token: Token) -> None:
        self._lists.append(int(token.attrGet("start") or 1))

    def close_list(self, _token: Token) -> None:
        self._lists.pop()
        if not self._lists:
            self._text.add("\n")

    def open_item(self, _token: Token) -> None:
        number = self._lists[-1]
        self._bullet = "- " if number is None else f"{number}. "
        if number is not None:
            self._lists[-1] = number + 1

    def open_row(self, _token: Token) -> None:
        self._row = []

    def close_row(self, _token: Token) -> None:
        self._text.add(_CELL_SEPARATOR.join(self._row or ()) + "\n")
        self._row = None

    def close_table(self, _token: Token) -> None:
        self._text.add("\n")

    def take_inline(self, token: Token) -> None:
        text = _inline_text(token.children or ())
        if self._row is not None:
            self._row.append(" ".join(text.split()))
        elif self._heading:
            self._title = self._title or text
            self._text.add_heading(self._heading, text)
        elif self._lists:
            # Nested lists are told apart by how far they are indented.
            self._text.add(f"{'  ' * (len(self._lists) - 1)}{self._bullet}{text}\n")
            self._bullet = ""
        else:
            self._text.add_block(text)


_TAKES: Mapping[str, Callable[[_Page, Token], None]] = {
    "heading_open": _Page.open_heading,
    "heading_close": _Page.close_heading,
    "inline": _Page.take_inline,
    "fence": _Page.take_code,
    "code_block": _Page.take_code,
    "html_block": _Page.take_markup,
    "bullet_list_open": _Page.open_bullets,
    "bullet_list_close": _Page.close_list,
    "ordered_list_open": _Page.open_numbers,
    "ordered_list_close": _Page.close_list,
    "list_item_open": _Page.open_item,
    "tr_open": _Page.open_row,
    "tr_close": _Page.close_row,
    "table_close": _Page.close_table,
}


def _inline_text(tokens: Sequence[Token]) -> str:
    pieces = []
    for token in tokens:
        if token.type in {"softbreak", "hardbreak"}:
            pieces.append("\n")
        elif token.type == "image":
            pieces.append(_inline_text(token.children or ()))
        elif token.type == "html_inline":
            pieces.append(" " if _TAG.fullmatch(token.content) else token.content)
        else:
            # Text and code; what opens and closes an emphasis or a link has none.
            pieces.append(token.content)
    return "".join(pieces)
