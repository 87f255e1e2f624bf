"""PDFs made by hand: small, readable, and as broken as a test wants them."""

import zlib
from collections.abc import Sequence

_FONT = b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>"


def pdf_of(pages: Sequence[str]) -> bytes:
    """Return a PDF with one line of plain ASCII text on each page."""
    contents = [f"BT /F1 12 Tf 40 700 Td ({text}) Tj ET".encode() for text in pages]
    return pdf_with(contents)


def pdf_with(contents: Sequence[bytes], *, is_compressed: bool = False) -> bytes:
    """Return a PDF whose pages have these content streams.

    Args:
        contents: What each page draws; already deflated if `is_compressed`.
        is_compressed: Whether the streams are said to be deflated.
    """
    count = len(contents)
    first_page, first_content = 4, 4 + count
    kids = b" ".join(b"%d 0 R" % (first_page + i) for i in range(count))
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[" + kids + b"]/Count %d>>" % count,
        _FONT,
        *(
            b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Resources<</Font<</F1 3 0 R>>>>"
            b"/Contents %d 0 R>>" % (first_content + i)
            for i in range(count)
        ),
        *(
            b"<</Length %d%s>>\nstream\n" % (len(each), b"/Filter/FlateDecode" * is_compressed)
            + each
            + b"\nendstream"
            for each in contents
        ),
    ]
    out = bytearray(b"%PDF-1.4\n")
    offsets = []
    for number, each in enumerate(objects, start=1):
        offsets.append(len(out))
        out += b"%d 0 obj\n" % number + each + b"\nendobj\n"
    start = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    out += b"".join(b"%010d 00000 n \n" % each for each in offsets)
    out += b"trailer\n<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, start)
    return bytes(out)


def pdf_bomb(unpacked_bytes: int) -> bytes:
    """Return a PDF with a page that becomes very large when it is unpacked."""
    return pdf_with([zlib.compress(b" " * unpacked_bytes, 9)], is_compressed=True)
