"""The process that reads documents, which may be anybody's: `python -m`, spoken to by its streams.

One document at a time: a line of JSON and the document's bytes in, the length of an answer and the
answer, JSON, out. It has so much memory for all of them and so much time for each; when a document
takes more, the system ends the process, and the host that asked starts another. It ends with its
standard input, so it outlives no host.
"""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import sys
from dataclasses import asdict, dataclass
from typing import Any, BinaryIO

from host_service.knowledge.chunking import cut
from host_service.knowledge.document import Part, ReadDocument
from host_service.knowledge.errors import DocumentUnreadable
from host_service.knowledge.kinds import DocumentKind, charset_of, kind_of
from host_service.knowledge.plain_text import read_plain_text

_IMPOSSIBLE = re.compile("[\0\ud800-\udfff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingTask:
    """What is to be read, and how.

    Attributes:
        name: The document's name.
        mime_type: Its type as the one who sent it says; empty: nothing was said.
        chunk_characters: How long a passage may be.
        overlap_characters: How much of a passage the next one may repeat.
        most_characters: How long its text may be.
        seconds: How much time of a processor it may take.
        size_bytes: How many bytes follow.
    """

    name: str
    mime_type: str
    chunk_characters: int
    overlap_characters: int
    most_characters: int
    seconds: float
    size_bytes: int


def main() -> None:
    """Read documents until there are no more."""
    most_memory = int(sys.argv[1])
    # Nothing of what it inherits may be reached by what a document makes a library do.
    resource.setrlimit(resource.RLIMIT_AS, (most_memory, most_memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answers = os.fdopen(os.dup(1), "wb")
    # A library that prints must not get between the answers.
    os.dup2(2, 1)
    questions = sys.stdin.buffer
    while line := questions.readline():
        task = ReadingTask(**json.loads(line))
        answer = json.dumps(_answer(task, questions), ensure_ascii=False).encode()
        answers.write(b"%d\n" % len(answer))
        answers.write(answer)
        answers.flush()


def _answer(task: ReadingTask, questions: BinaryIO) -> dict[str, Any]:
    content = questions.read(task.size_bytes)
    # Time of the processor, so that a busy machine makes no document too slow to read. Nobody
    # handles the signal: it ends the process wherever it is.
    signal.setitimer(signal.ITIMER_PROF, task.seconds)
    try:
        return read_and_cut(task, content)
    except DocumentUnreadable as error:
        return {"error": error.message}
    except MemoryError:
        return {"error": "it needs more memory than a document may: split it"}
    except RecursionError:
        return {"error": "it is nested too deep"}
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def read_and_cut(task: ReadingTask, content: bytes) -> dict[str, Any]:
    """Return a document and its passages, as JSON can have them.

    Raises:
        DocumentUnreadable: It cannot be read.
    """
    document = _storable(read(content, task))
    passages = cut(document, characters=task.chunk_characters, overlap=task.overlap_characters)
    numbers = {id(part): i for i, part in enumerate(document.parts)}
    return {
        "text": document.text,
        "title": document.title,
        "parts": [asdict(part) for part in document.parts],
        "passages": [
            (passage.position, passage.length, numbers[id(passage.part)]) for passage in passages
        ],
    }


def read(content: bytes, task: ReadingTask) -> ReadDocument:
    """Read a document of any kind.

    Raises:
        DocumentUnreadable: It cannot be read.
    """
    kind = kind_of(content, name=task.name, mime_type=task.mime_type)
    charset, most = charset_of(task.mime_type), task.most_characters
    # Each library is imported for the first document that needs it.
    if kind is DocumentKind.PDF:
        from host_service.knowledge.pdf import read_pdf

        return read_pdf(content, most_characters=most)
    if kind is DocumentKind.MARKDOWN:
        from host_service.knowledge.markdown import read_markdown

        return read_markdown(content, charset=charset, most_characters=most)
    if kind is DocumentKind.HTML:
        from host_service.knowledge.html import read_html

        return read_html(content, charset=charset, most_characters=most)
    return read_plain_text(content, charset=charset, most_characters=most)


def _storable(document: ReadDocument) -> ReadDocument:
    """Replace what no database keeps, one character by one: positions stay what they are."""
    return ReadDocument(
        text=_replace(document.text),
        title=_replace(document.title),
        parts=tuple(
            Part(
                position=part.position,
                headings=tuple(map(_replace, part.headings)),
                page=part.page,
            )
            for part in document.parts
        ),
    )


def _replace(text: str) -> str:
    return _IMPOSSIBLE.sub("\ufffd", text)


if __name__ == "__main__":
    main()
