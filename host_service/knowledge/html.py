"""HTML to text: what a reader of the page sees, without what is there to get around in it."""

from __future__ import annotations

import re

from selectolax.lexbor import LexborHTMLParser, LexborNode

from host_service.knowledge.document import DocumentText, ReadDocument
from host_service.knowledge.plain_text import decode

_DROPPED = frozenset(
    """
    script style template noscript nav head svg math iframe object embed canvas audio video
    select button input textarea dialog menu
    """.split()  # noqa: SIM905 - a list of so many words is a column
)
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_BLOCKS = frozenset(
    """
    address article aside blockquote body center dd details div dl dt fieldset figcaption
    figure footer form header hr html li main ol p pre section summary table tbody thead tfoot
    tr ul caption
    """.split()  # noqa: SIM905 - a list of so many words is a column
)
_LISTS = frozenset({"ul", "ol", "dl"})
_CELLS = frozenset({"td", "th"})
_HIDDEN_STYLE = re.compile(r"(?:display\s*:\s*none|visibility\s*:\s*hidden)", re.IGNORECASE)
_META_CHARSET = re.compile(
    rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([a-zA-Z0-9_.:-]{1,40})", re.IGNORECASE
)
# Browsers look no further.
_META_WITHIN = 1024
_BLANKS = re.compile(r"[ \t\r\n\f]+")
_CELL_SEPARATOR = " | "


def read_html(content: bytes, *, charset: str, most_characters: int) -> ReadDocument:
    """Read an HTML page.

    Args:
        content: The file.
        charset: Its encoding as the one who sent it says; empty: as a mark or the page says.
        most_characters: How long its text may be.

    Raises:
        DocumentUnreadable: It is not text in its encoding, or too long.
    """
    tree = LexborHTMLParser(decode(content, charset=charset or _meta_charset(content)))
    page = _Page(DocumentText(most_characters=most_characters))
    if tree.root is not None:
        page.walk(tree.root)
    title = tree.css_first("title")
    return page.end(title=title.text() if title is not None else "")


def text_of_html(markup: str) -> str:
    """Return the text of a fragment of HTML."""
    page = _Page(DocumentText(most_characters=len(markup) * 2 + 16))
    tree = LexborHTMLParser(markup)
    if tree.root is not None:
        page.walk(tree.root)
    return page.end(title="").text


def _meta_charset(content: bytes) -> str:
    found = _META_CHARSET.search(content[:_META_WITHIN])
    name = found.group(1).decode("ascii") if found else ""
    # A page whose `meta` could be read as bytes is in neither of these, whatever it says.
    return "" if name.lower().startswith(("utf-16", "utf-32")) else name


class _Page:
    """Walks a tree in the order of the text; never calls itself, however deep the tree is."""

    def __init__(self, text: DocumentText) -> None:
        self._text = text
        self._line: list[str] = []
        self._preformatted = 0
        self._lists = 0
        # Whether the text ends in a line that what comes next may still belong to.
        self._is_open = False

    def walk(self, root: LexborNode) -> None:
        """Take in all text below a node."""
        # A node, and whether it is left (True) or entered.
        stack: list[tuple[LexborNode, bool]] = [(root, False)]
        while stack:
            node, leaving = stack.pop()
            if leaving:
                self._leave(node)
            elif self._enter(node):
                stack.append((node, True))
                children: list[tuple[LexborNode, bool]] = []
                child = node.child
                while child is not None:
                    children.append((child, False))
                    child = child.next
                stack += reversed(children)

    def end(self, *, title: str) -> ReadDocument:
        """Return the document."""
        self._break()
        return self._text.document(title=title)

    def _enter(self, node: LexborNode) -> bool:
        tag = node.tag
        if tag == "-text":
            self._take(node.text_content or "")
            return False
        if tag is None or tag.startswith(("-", "!", "_")) or tag in _DROPPED or _is_hidden(node):
            return tag in {"-document", "-undef"}
        if tag in _HEADINGS:
            self._break()
        elif tag == "br":
            self._line.append("\n")
        elif tag == "img":
            self._take(f" {node.attributes.get('alt') or ''} ")
        elif tag == "pre":
            self._break()
            self._preformatted += 1
        elif tag == "li":
            self._break(end_of_paragraph=False)
            self._line.append("- ")
        elif tag in _LISTS:
            self._break(end_of_paragraph=not self._lists)
            self._lists += 1
        elif tag in _BLOCKS:
            self._break(end_of_paragraph=tag != "tr")
        return True

    def _leave(self, node: LexborNode) -> None:
        tag = node.tag or ""
        if tag in _HEADINGS:
            heading = "".join(self._line)
            self._line.clear()
            self._text.add_heading(_HEADINGS[tag], heading)
        elif tag in _CELLS:
            self._line.append(_CELL_SEPARATOR)
        elif tag == "pre":
            self._break()
            self._preformatted -= 1
        elif tag in _LISTS:
            self._lists -= 1
            self._break(end_of_paragraph=not self._lists)
        elif tag in _BLOCKS:
            self._break(end_of_paragraph=tag not in {"tr", "li"})

    def _take(self, text: str) -> None:
        self._line.append(text if self._preformatted else _BLANKS.sub(" ", text))

    def _break(self, *, end_of_paragraph: bool = True) -> None:
        """End the line that is under way."""
        text = "".join(self._line)
        self._line.clear()
        if not self._preformatted:
            lines = (" ".join(line.split()).removesuffix("|").strip() for line in text.split("\n"))
            text = "\n".join(line for line in lines if line and line != "-")
        if text.strip():
            self._text.add(text.strip("\n") + "\n")
            self._is_open = True
        if end_of_paragraph and self._is_open:
            self._text.add("\n")
            self._is_open = False


def _is_hidden(node: LexborNode) -> bool:
    attributes = node.attributes
    return (
        "hidden" in attributes
        or attributes.get("aria-hidden") == "true"
        or attributes.get("role") == "navigation"
        or _HIDDEN_STYLE.search(attributes.get("style") or "") is not None
    )
