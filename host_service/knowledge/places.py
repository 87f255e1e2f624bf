"""Where in its document a passage stands, as the store keeps it and as it is shown.

The store keeps headings. Of a document that has pages, the page stands as the last of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from host_service.knowledge.document import HEADING_SEPARATOR, Part
from host_service.validation.json_exact import Number, read_exactly, write_exactly

PDF_TYPE = "application/pdf"

_PAGE = re.compile(r"page ([1-9][0-9]*)")


def kept_headings(part: Part) -> tuple[str, ...]:
    """Return the headings that the store keeps of a part of a document."""
    return part.headings if part.page is None else (*part.headings, f"page {part.page}")


def shown_metadata(metadata_json: str, *, mime_type: str, kept: Sequence[str]) -> str:
    """Return the metadata of a passage: its document's, and where it stands.

    `heading` and `page` are added where the document's own metadata has none of that name: what
    somebody said of a document is never written over.

    Args:
        metadata_json: The document's.
        mime_type: The document's type.
        kept: The headings that the store keeps.
    """
    headings, page = list(kept), None
    found = _PAGE.fullmatch(headings[-1]) if headings and mime_type == PDF_TYPE else None
    if found is not None:
        headings.pop()
        page = Number(found.group(1))
    place = {"heading": HEADING_SEPARATOR.join(headings), "page": page}
    return write_exactly(
        {**{name: value for name, value in place.items() if value}, **read_exactly(metadata_json)}
    )
