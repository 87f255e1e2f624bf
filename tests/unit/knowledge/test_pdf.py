"""PDF becomes text, page by page; what no text can be had of says why."""

import io
import zlib

import pytest
from pypdf import PdfReader, PdfWriter

from host_service.knowledge.errors import DocumentUnreadable
from host_service.knowledge.pdf import read_pdf
from tests.unit.knowledge.pdfs import pdf_of, pdf_with


def encrypted(content: bytes, password: str) -> bytes:
    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(content)))
    writer.encrypt(password, owner_password="owner")
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def test_pages_are_numbered_from_one() -> None:
    document = read_pdf(pdf_of(["first words", "second words"]), most_characters=1000)
    assert [(part.page, part.position) for part in document.parts] == [(1, 0), (2, 13)]
    assert document.text == "first words\n\nsecond words\n\n"


def test_page_without_text_among_others_costs_nothing() -> None:
    document = read_pdf(pdf_of(["", "words"]), most_characters=1000)
    assert [part.page for part in document.parts] == [2]


def test_password_is_asked_for() -> None:
    with pytest.raises(DocumentUnreadable, match="encrypted: save it without a password"):
        read_pdf(encrypted(pdf_of(["secret"]), "word"), most_characters=1000)


def test_encryption_without_a_password_is_none_to_a_reader() -> None:
    document = read_pdf(encrypted(pdf_of(["for everybody"]), ""), most_characters=1000)
    assert "for everybody" in document.text


def test_pictures_of_pages_are_told_from_text() -> None:
    with pytest.raises(DocumentUnreadable, match=r"pictures.*\(OCR\)"):
        read_pdf(pdf_with([b"0 0 100 100 re f"]), most_characters=1000)


@pytest.mark.parametrize("kept", [8, 40, 200, 400])
def test_what_is_cut_off_is_damaged_or_read_and_never_a_crash(kept: int) -> None:
    with pytest.raises(DocumentUnreadable, match="damaged"):
        read_pdf(pdf_of(["some words"])[:kept], most_characters=1000)


def test_pages_that_refer_to_themselves_are_damaged() -> None:
    content = b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n"
    content += b"2 0 obj<</Type/Pages/Kids[2 0 R]/Count 1>>endobj\ntrailer<</Root 1 0 R>>\n"
    with pytest.raises(DocumentUnreadable):
        read_pdf(content, most_characters=1000)


def test_text_that_is_too_long_names_the_limit() -> None:
    with pytest.raises(DocumentUnreadable, match=r"limits\.document_characters"):
        read_pdf(pdf_of(["many words"] * 50), most_characters=100)


def test_deflated_pages_are_read() -> None:
    drawn = zlib.compress(b"BT /F1 12 Tf 40 700 Td (deflated) Tj ET")
    assert "deflated" in read_pdf(pdf_with([drawn], is_compressed=True), most_characters=99).text
