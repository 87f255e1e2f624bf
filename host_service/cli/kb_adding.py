"""Sending documents to a host, some at once, and what is shown meanwhile."""

import asyncio
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self

import grpc
from runmesh.admin.v1 import knowledge_pb2

from host_service.cli.connection import CALL_SECONDS, HostConnection
from host_service.cli.display import notes
from host_service.cli.failures import one_line
from host_service.cli.kb_files import FoundFile, FoundFiles
from host_service.cli.paging import collect
from host_service.cli.refusals import decode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.progress import Progress, TaskID

_CHUNK_BYTES = 1024 * 1024
# The host takes as many at once.
_AT_ONCE = 4
# A document may be read for a minute, and its vectors made on a machine that is slow at it.
_DOCUMENT_SECONDS = 3600.0
# Without these there is nothing to go on with: the next document would fail alike.
_ENDING = frozenset({"NOT_FOUND", "UNAUTHENTICATED", "UNAUTHORIZED"})


@dataclass(slots=True)
class Summary:
    """What became of documents.

    Attributes:
        added: How many were added or replaced.
        unchanged: How many were as they are.
        removed: How many were removed.
        passages: Passages of those that were added.
        failed: Files that could not be added, with why.
        vectors_missing: Why passages have no vectors yet; empty: none lacks one.
    """

    added: int = 0
    unchanged: int = 0
    removed: int = 0
    passages: int = 0
    failed: list[tuple[str, str]] = field(default_factory=list)
    vectors_missing: str = ""

    def told(self) -> str:
        """In one line."""
        counts = [
            f"{self.added} added ({passages_of(self.passages)})",
            f"{self.unchanged} unchanged",
            f"{self.removed} removed" if self.removed else "",
            f"{len(self.failed)} failed" if self.failed else "",
        ]
        return ", ".join(filter(None, counts))


def passages_of(count: int) -> str:
    """So many passages, in words."""
    return f"{count} passage" if count == 1 else f"{count} passages"


class AddingShown:
    """Shows how far documents are: bars on a terminal, else a line for each. Use it with `with`."""

    def __init__(self, documents: int) -> None:
        self._documents = documents
        self._bars: Progress | None = None
        self._all: TaskID | None = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

            self._bars = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                MofNCompleteColumn(),
                console=notes(),
                transient=True,
            )
            self._bars.start()
            self._all = self._bars.add_task("documents", total=self._documents)
        return self

    def __exit__(self, *_: object) -> None:
        if self._bars is not None:
            self._bars.stop()

    def begin(self, name: str) -> "TaskID | None":
        """A document begins."""
        return None if self._bars is None else self._bars.add_task(one_line(name), total=None)

    def moved(self, task: "TaskID | None", step: knowledge_pb2.AddDocumentResponse) -> None:
        """A document has come so far."""
        if self._bars is not None and task is not None and step.total:
            received = step.step == knowledge_pb2.DOCUMENT_STEP_RECEIVED
            if not received:
                self._bars.update(task, completed=step.done, total=step.total)

    def end(self, task: "TaskID | None", line: str) -> None:
        """A document has ended."""
        if self._bars is not None and task is not None and self._all is not None:
            self._bars.remove_task(task)
            self._bars.advance(self._all)
            self._bars.console.print(one_line(line), soft_wrap=True)
        else:
            print(one_line(line))


class Adding:
    """Adds files to a knowledge base.

    Args:
        knowledge_base_id: Which.
        metadata_json: What is said of each of them.
        found: The files.
        sync: Whether documents of the folders are removed whose files are gone.
    """

    def __init__(
        self, knowledge_base_id: str, *, metadata_json: str, found: FoundFiles, sync: bool
    ) -> None:
        self._base = knowledge_base_id
        self._metadata_json = metadata_json
        self._found = found
        self._sync = sync
        self._summary = Summary()

    async def work(self, host: HostConnection) -> Summary:
        """Adds them all; one that fails costs only itself.

        Raises:
            grpc.aio.AioRpcError: None can be added.
        """
        # Whatever there is to say of the knowledge base is said before the first file is read.
        await host.admin.CountDocuments(
            knowledge_pb2.CountDocumentsRequest(knowledge_base_id=self._base),
            metadata=host.metadata,
            timeout=CALL_SECONDS,
        )
        turns = asyncio.Semaphore(_AT_ONCE)
        with AddingShown(len(self._found.files)) as shown:
            async with asyncio.TaskGroup() as tasks:
                for each in self._found.files:
                    tasks.create_task(self._add_in_turn(host, each, shown, turns))
        if self._sync:
            await self._remove_gone(host)
        return self._summary

    async def _add_in_turn(
        self, host: HostConnection, file: FoundFile, shown: AddingShown, turns: asyncio.Semaphore
    ) -> None:
        async with turns:
            task = shown.begin(file.document_id)
            try:
                last = await self._add(host, file, shown, task)
            except OSError as error:
                self._fail(file, error.strerror or str(error), shown, task)
            except grpc.aio.AioRpcError as error:
                self._fail(file, _why(error), shown, task)
            else:
                self._note(file, last, shown, task)

    async def _add(
        self, host: HostConnection, file: FoundFile, shown: AddingShown, task: "TaskID | None"
    ) -> knowledge_pb2.AddDocumentResponse:
        # Opened first: a file that cannot be read is told as that, and not as a broken call.
        content = await asyncio.to_thread(file.path.read_bytes)
        info = knowledge_pb2.DocumentInfo(
            knowledge_base_id=self._base,
            document_id=file.document_id,
            name=file.document_id,
            source=str(file.path.resolve()),
            metadata_json=self._metadata_json,
        )
        last = knowledge_pb2.AddDocumentResponse()
        async for step in host.admin.AddDocument(
            _pieces(info, content), metadata=host.metadata, timeout=_DOCUMENT_SECONDS
        ):
            shown.moved(task, step)
            last = step
        return last

    def _note(
        self,
        file: FoundFile,
        last: knowledge_pb2.AddDocumentResponse,
        shown: AddingShown,
        task: "TaskID | None",
    ) -> None:
        if last.step == knowledge_pb2.DOCUMENT_STEP_UNCHANGED:
            self._summary.unchanged += 1
            shown.end(task, f"{file.document_id}: unchanged")
            return
        self._summary.added += 1
        self._summary.passages += last.document.passages
        self._summary.vectors_missing = last.vectors_missing or self._summary.vectors_missing
        shown.end(task, f"{file.document_id}: {passages_of(last.document.passages)}")

    def _fail(self, file: FoundFile, why: str, shown: AddingShown, task: "TaskID | None") -> None:
        self._summary.failed.append((str(file.path), why))
        shown.end(task, f"{file.document_id}: failed: {why}")

    def _is_gone(self, source: str) -> bool:
        """Whether a document came from one of the folders, and its file is not there any more."""
        path = Path(source)
        return not path.exists() and any(map(path.is_relative_to, self._found.folders))

    async def _remove_gone(self, host: HostConnection) -> None:
        there = {each.document_id for each in self._found.files}
        for document in await list_documents(host, self._base):
            if document.document_id not in there and self._is_gone(document.source):
                await host.admin.DeleteDocument(
                    knowledge_pb2.DeleteDocumentRequest(
                        knowledge_base_id=self._base, document_id=document.document_id
                    ),
                    metadata=host.metadata,
                    timeout=CALL_SECONDS,
                )
                self._summary.removed += 1
                print(one_line(f"{document.document_id}: removed, its file is gone"))


async def list_documents(
    host: HostConnection, knowledge_base_id: str
) -> "Sequence[knowledge_pb2.Document]":
    """All documents of a knowledge base."""

    async def page(size: int, token: str) -> "tuple[Sequence[knowledge_pb2.Document], str]":
        answer = await host.admin.ListDocuments(
            knowledge_pb2.ListDocumentsRequest(
                knowledge_base_id=knowledge_base_id, page_size=size, page_token=token
            ),
            metadata=host.metadata,
            timeout=CALL_SECONDS,
        )
        return answer.documents, answer.next_page_token

    return await collect(page)


async def make_vectors(host: HostConnection, knowledge_base_id: str) -> tuple[int, int]:
    """Has missing vectors made; returns how many passages have one, and how many there are."""
    done, total = 0, 0
    with AddingShown(1) as shown:
        task = shown.begin("vectors")
        async for step in host.admin.EmbedDocuments(
            knowledge_pb2.EmbedDocumentsRequest(knowledge_base_id=knowledge_base_id),
            metadata=host.metadata,
            timeout=_DOCUMENT_SECONDS,
        ):
            done, total = step.done, step.total
            shown.moved(task, knowledge_pb2.AddDocumentResponse(done=done, total=total))
        shown.end(task, f"{done} of {total} passages have vectors")
    return done, total


async def _pieces(
    info: knowledge_pb2.DocumentInfo, content: bytes
) -> AsyncIterator[knowledge_pb2.AddDocumentRequest]:
    yield knowledge_pb2.AddDocumentRequest(info=info)
    for at in range(0, len(content), _CHUNK_BYTES):
        yield knowledge_pb2.AddDocumentRequest(chunk=content[at : at + _CHUNK_BYTES])


def _why(error: grpc.aio.AioRpcError) -> str:
    refusal = decode(error)
    if not refusal.from_host or refusal.reason in _ENDING:
        raise error
    return refusal.message.partition(" cannot be read: ")[2] or refusal.message
