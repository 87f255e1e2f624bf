"""What kind of document some bytes are: by their beginning, their type, their name."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import PurePosixPath

from host_service.knowledge.errors import DocumentUnreadable


class DocumentKind(StrEnum):
    """A kind of document that can be read."""

    TEXT = "text"
    MARKDOWN = "markdown"
    HTML = "html"
    PDF = "pdf"


#: The ends of names that say what a file is.
ENDINGS: Mapping[str, DocumentKind] = {
    ".txt": DocumentKind.TEXT,
    ".text": DocumentKind.TEXT,
    ".log": DocumentKind.TEXT,
    ".rst": DocumentKind.TEXT,
    ".adoc": DocumentKind.TEXT,
    ".org": DocumentKind.TEXT,
    ".csv": DocumentKind.TEXT,
    ".tsv": DocumentKind.TEXT,
    ".json": DocumentKind.TEXT,
    ".yaml": DocumentKind.TEXT,
    ".yml": DocumentKind.TEXT,
    ".toml": DocumentKind.TEXT,
    ".proto": DocumentKind.TEXT,
    ".md": DocumentKind.MARKDOWN,
    ".markdown": DocumentKind.MARKDOWN,
    ".mdx": DocumentKind.MARKDOWN,
    ".html": DocumentKind.HTML,
    ".htm": DocumentKind.HTML,
    ".xhtml": DocumentKind.HTML,
    ".pdf": DocumentKind.PDF,
}

_MIME_TYPES: Mapping[str, DocumentKind] = {
    "text/markdown": DocumentKind.MARKDOWN,
    "text/x-markdown": DocumentKind.MARKDOWN,
    "text/html": DocumentKind.HTML,
    "application/xhtml+xml": DocumentKind.HTML,
    "application/pdf": DocumentKind.PDF,
    "application/json": DocumentKind.TEXT,
}

_TYPE_OF: Mapping[DocumentKind, str] = {
    DocumentKind.TEXT: "text/plain",
    DocumentKind.MARKDOWN: "text/markdown",
    DocumentKind.HTML: "text/html",
    DocumentKind.PDF: "application/pdf",
}

# A PDF's header may have something before it.
_PDF_HEADER_WITHIN = 1024
# What tells a file of another kind, whatever it is called.
_OTHER_KINDS: tuple[tuple[bytes, str], ...] = (
    (b"PK\x03\x04", "an archive or an office document"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old office document"),
    (b"\x89PNG", "a picture"),
    (b"\xff\xd8\xff", "a picture"),
    (b"GIF8", "a picture"),
    (b"\x1f\x8b", "a compressed file"),
    (b"\x7fELF", "a program"),
)
_READ_KINDS = "text, Markdown, HTML and PDF can be read"


def kind_of(content: bytes, *, name: str, mime_type: str) -> DocumentKind:
    """Return what a document is. Its content says it before its type, and its type before its name.

    Raises:
        DocumentUnreadable: It is of a kind that cannot be read.
    """
    if b"%PDF-" in content[:_PDF_HEADER_WITHIN]:
        return DocumentKind.PDF
    for beginning, other in _OTHER_KINDS:
        if content.startswith(beginning):
            raise DocumentUnreadable(f"it is {other}: {_READ_KINDS}")
    essence = mime_type.partition(";")[0].strip().lower()
    named = ENDINGS.get(PurePosixPath(name).suffix.lower())
    kind = _MIME_TYPES.get(essence) or named
    if kind is DocumentKind.PDF:
        raise DocumentUnreadable("it is no PDF, although it says that it is one: no %PDF header")
    if kind is not None:
        return kind
    if essence and not essence.startswith("text/") and essence != "application/octet-stream":
        raise DocumentUnreadable(f"it is of type {essence}: {_READ_KINDS}")
    return DocumentKind.HTML if _looks_like_html(content) else DocumentKind.TEXT


def type_of(content: bytes, *, name: str, mime_type: str) -> str:
    """Return the type to remember of a document: as was said, else as it is, else nothing."""
    try:
        kind = kind_of(content, name=name, mime_type=mime_type)
    except DocumentUnreadable:
        return mime_type
    # Whatever was said: only of what is a PDF is a page ever told.
    return _TYPE_OF[kind] if kind is DocumentKind.PDF or not mime_type else mime_type


def charset_of(mime_type: str) -> str:
    """Return the encoding that a type names, such as `text/plain; charset=gb18030`, or nothing."""
    for parameter in mime_type.split(";")[1:]:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset":
            return value.strip().strip('"')
    return ""


def _looks_like_html(content: bytes) -> bool:
    beginning = content[:512].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    return beginning.startswith((b"<!doctype html", b"<html"))
