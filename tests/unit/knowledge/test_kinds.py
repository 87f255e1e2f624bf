"""What a document is: its content says it before its type, and its type before its name."""

import pytest

from host_service.knowledge.errors import DocumentUnreadable
from host_service.knowledge.kinds import DocumentKind, charset_of, kind_of, type_of


@pytest.mark.parametrize(
    ("content", "name", "mime_type", "kind"),
    [
        (b"%PDF-1.7 ...", "notes.txt", "text/plain", DocumentKind.PDF),
        (b"# A", "a.txt", "text/markdown; charset=utf-8", DocumentKind.MARKDOWN),
        (b"# A", "A.MD", "", DocumentKind.MARKDOWN),
        (b"x", "page.htm", "application/octet-stream", DocumentKind.HTML),
        (b"\xef\xbb\xbf\n<!DOCTYPE html><p>x", "page", "", DocumentKind.HTML),
        (b"x", "README", "", DocumentKind.TEXT),
        (b"x", "x.py", "text/x-python", DocumentKind.TEXT),
    ],
)
def test_kind_is_told(content: bytes, name: str, mime_type: str, kind: DocumentKind) -> None:
    assert kind_of(content, name=name, mime_type=mime_type) is kind


@pytest.mark.parametrize(
    ("content", "name", "mime_type", "said"),
    [
        (b"PK\x03\x04...", "notes.txt", "text/plain", "office document"),
        (b"\x89PNG\r\n", "a.md", "", "a picture"),
        (b"no pdf", "a.pdf", "", "no PDF"),
        (b"x", "x", "video/mp4", "video/mp4"),
    ],
)
def test_other_kinds_are_refused_by_what_they_are(
    content: bytes, name: str, mime_type: str, said: str
) -> None:
    with pytest.raises(DocumentUnreadable, match=said):
        kind_of(content, name=name, mime_type=mime_type)


def test_encoding_of_a_type_is_told() -> None:
    assert charset_of('text/plain; format=flowed; Charset="GB18030"') == "GB18030"
    assert charset_of("text/plain") == ""


def test_type_that_is_remembered_is_the_contents_where_it_is_a_pdf() -> None:
    assert type_of(b"%PDF-1.4", name="a.txt", mime_type="text/plain") == "application/pdf"
    assert type_of(b"x", name="a.md", mime_type="") == "text/markdown"
    assert type_of(b"x", name="a.md", mime_type="text/plain; charset=x") == "text/plain; charset=x"
    assert type_of(b"PK\x03\x04", name="a.docx", mime_type="") == ""
