"""PDF to text, page by page."""

from __future__ import annotations

import io
import logging
import re

from pypdf import PdfReader
from pypdf.errors import PyPdfError

from host_service.knowledge.document import DocumentText, ReadDocument
from host_service.knowledge.errors import DocumentUnreadable

_BROKEN = "it is a PDF that cannot be read, damaged or not finished"
# Surrogates that a font's table yields by mistake, and what no database keeps.
_IMPOSSIBLE = re.compile("[\0\ud800-\udfff]")


def read_pdf(content: bytes, *, most_characters: int) -> ReadDocument:
    """Read a PDF.

    Args:
        content: The file.
        most_characters: How long its text may be.

    Raises:
        DocumentUnreadable: It is encrypted, has no text, is damaged, or too long.
    """
    # It remarks on whatever is odd in a file; nobody reads that here.
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    try:
        return _read(content, most_characters)
    except DocumentUnreadable:
        raise
    except MemoryError as error:
        raise DocumentUnreadable("it needs more memory than a document may: split it") from error
    except (
        PyPdfError,
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        ArithmeticError,
    ) as error:
        # A damaged file breaks whatever relied on it being whole.
        raise DocumentUnreadable(_BROKEN) from error
    except (RecursionError, AssertionError, NotImplementedError, OSError) as error:
        raise DocumentUnreadable(_BROKEN) from error


def _read(content: bytes, most_characters: int) -> ReadDocument:
    reader = PdfReader(io.BytesIO(content), strict=False)
    # Many are encrypted with no password at all, only to forbid printing.
    if reader.is_encrypted and not reader.decrypt(""):
        raise DocumentUnreadable("it is encrypted: save it without a password")
    text = DocumentText(most_characters=most_characters)
    has_text = False
    pages = 0
    for number, page in enumerate(reader.pages, start=1):
        found = _IMPOSSIBLE.sub("\ufffd", page.extract_text())
        has_text = has_text or bool(found.strip())
        text.add_page(number, found)
        pages = number
    if not pages:
        raise DocumentUnreadable(_BROKEN)
    if not has_text:
        raise DocumentUnreadable(
            "it has no text, its pages are pictures: let a program recognise the text first (OCR)"
        )
    title = reader.metadata.title if reader.metadata is not None else None
    return text.document(title=_IMPOSSIBLE.sub("\ufffd", str(title or "")))
