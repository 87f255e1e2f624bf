"""Documents are read by a process that none of them can use against the host."""

from collections.abc import AsyncIterator

import pytest
import uvloop
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from host_service.knowledge.document import ReadDocument
from host_service.knowledge.errors import DocumentUnreadable, ReaderFailed
from host_service.knowledge.reader_process import ReadingTask, read, read_and_cut
from host_service.knowledge.reading import CutDocument, DocumentReader
from host_service.limits import MIB, Limits
from tests.unit.knowledge.pdfs import pdf_bomb, pdf_of

# Each character is looked for from every one before it: hours for a megabyte.
SLOW_MARKDOWN = b"*a **b " * 150_000


@pytest.fixture
async def reader() -> AsyncIterator[DocumentReader]:
    made = DocumentReader(limits=Limits(document_seconds=1.0, document_readers=1))
    yield made
    await made.close()


async def read_with(reader: DocumentReader, content: bytes, name: str) -> CutDocument:
    return await reader.read(
        content, name=name, mime_type="", chunk_characters=100, overlap_characters=10
    )


async def test_documents_of_all_kinds_are_read_by_one_process(reader: DocumentReader) -> None:
    found = [
        await read_with(reader, b"words", "a.txt"),
        await read_with(reader, b"# Title\n\nwords", "a.md"),
        await read_with(reader, b"<h1>Title</h1><p>words", "a.html"),
        await read_with(reader, pdf_of(["words"]), "a.pdf"),
    ]
    assert [each.text.split()[-1] for each in found] == ["words"] * 4
    assert found[1].passages[0].part.headings == ("Title",)
    assert found[3].passages[0].part.page == 1
    assert len(reader._idle) == 1


async def test_passages_are_the_text_at_their_positions(reader: DocumentReader) -> None:
    cut = await read_with(reader, ("Satz 😀 eins. " * 60).encode(), "a.txt")
    assert len(cut.passages) > 5
    for each in cut.passages:
        text = cut.text[each.position : each.position + each.length]
        assert text.startswith(("Satz", "😀", "eins"))


async def test_document_that_takes_too_long_is_given_up_and_the_next_is_read(
    reader: DocumentReader,
) -> None:
    with pytest.raises(ReaderFailed, match=r"1 s \(limits\.document_seconds\)"):
        await read_with(reader, SLOW_MARKDOWN, "slow.md")
    assert (await read_with(reader, b"words", "a.txt")).text == "words"


async def test_document_that_is_much_larger_inside_is_refused(reader: DocumentReader) -> None:
    with pytest.raises(DocumentUnreadable):
        await read_with(reader, pdf_bomb(400 * MIB), "bomb.pdf")
    assert (await read_with(reader, b"words", "a.txt")).text == "words"


async def test_process_that_is_killed_between_documents_costs_none(reader: DocumentReader) -> None:
    await read_with(reader, b"words", "a.txt")
    reader._idle[0].kill()
    assert (await read_with(reader, b"words", "a.txt")).text == "words"


def test_process_whose_loss_the_loop_has_seen_costs_no_document() -> None:
    async def read_after_it_is_gone() -> str:
        reader = DocumentReader(limits=Limits())
        await read_with(reader, b"words", "a.txt")
        await reader._idle[0].end()
        try:
            return (await read_with(reader, b"more words", "a.txt")).text
        finally:
            await reader.close()

    # The host's own event loop has an error of its own for what is closed already.
    assert uvloop.run(read_after_it_is_gone()) == "more words"


async def test_closing_leaves_no_process() -> None:
    reader = DocumentReader(limits=Limits())
    await read_with(reader, b"words", "a.txt")
    process = reader._idle[0]
    await reader.close()
    assert process.has_ended


def task(name: str, content: bytes) -> ReadingTask:
    return ReadingTask(
        name=name,
        mime_type="",
        chunk_characters=50,
        overlap_characters=5,
        most_characters=10_000,
        seconds=1.0,
        size_bytes=len(content),
    )


_MARKUP = st.lists(
    st.sampled_from(
        [
            *(
                "# ",
                "\n",
                "> ",
                "- ",
                "1. ",
                "```",
                "`",
                "*",
                "**",
                "|",
                "---\n",
                "[a](",
                "<",
                "&#0;",
            ),
            *(
                "<p>",
                "</div>",
                "<table><tr><td>",
                "<script>",
                "&#xD800;",
                "\0",
                "\ud7ff",
                "文",
                "x",
            ),
        ]
    ),
    max_size=60,
).map("".join)
_PDF = pdf_of(["some words", "and more"])


@st.composite
def damaged_pdfs(draw: st.DrawFn) -> bytes:
    content = bytearray(_PDF)
    for _ in range(draw(st.integers(1, 12))):
        at = draw(st.integers(9, len(content) - 1))
        content[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=4))
    return bytes(content)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from([".txt", ".md", ".html", ".pdf", ""]),
    st.one_of(st.binary(max_size=300), _MARKUP.map(str.encode), damaged_pdfs()),
)
def test_any_bytes_are_a_document_or_an_error(ending: str, content: bytes) -> None:
    try:
        document = read(content, task(f"x{ending}", content))
    except DocumentUnreadable:
        return
    assert isinstance(document, ReadDocument)
    cut = read_and_cut(task(f"x{ending}", content), content)
    cut["text"].encode()
    assert "\0" not in cut["text"]
    assert all(
        0 <= position < position + length <= len(cut["text"])
        for position, length, _ in cut["passages"]
    )
