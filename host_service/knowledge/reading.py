"""Reading documents in processes of their own, so that none can hang the host or end it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import host_service
from host_service.knowledge.chunking import Passage
from host_service.knowledge.document import Part
from host_service.knowledge.errors import DocumentUnreadable, ReaderFailed
from host_service.knowledge.reader_process import ReadingTask
from host_service.limits import Limits

_MODULE = "host_service.knowledge.reader_process"
# The process counts its own time. Only if that failed, as it never should, the host's clock ends
# it: late enough for any machine.
_PATIENCE = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CutDocument:
    """A document that was read and cut.

    Attributes:
        text: All its text.
        title: What it calls itself; empty: nothing.
        passages: Its passages, in their order.
    """

    text: str
    title: str
    passages: Sequence[Passage]


class DocumentReader:
    """Reads documents, a few at once, each in a process that is kept for the next one.

    Args:
        limits: How many at once; how long, how large and how slow a document may be.
    """

    def __init__(self, *, limits: Limits) -> None:
        self._limits = limits
        self._turns = asyncio.Semaphore(limits.document_readers)
        self._idle: list[_Process] = []
        self._closing: asyncio.TimerHandle | None = None

    async def read(
        self,
        content: bytes,
        *,
        name: str,
        mime_type: str,
        chunk_characters: int,
        overlap_characters: int,
    ) -> CutDocument:
        """Read and cut a document.

        Args:
            content: The file.
            name: Its name, whose end may say what it is.
            mime_type: Its type; empty: not known.
            chunk_characters: How long a passage may be.
            overlap_characters: How much of a passage the next one may repeat.

        Raises:
            DocumentUnreadable: It cannot be read.
            ReaderFailed: It took too long or too much memory.
        """
        task = ReadingTask(
            name=name,
            mime_type=mime_type,
            chunk_characters=chunk_characters,
            overlap_characters=overlap_characters,
            most_characters=self._limits.document_characters,
            seconds=self._limits.document_seconds,
            size_bytes=len(content),
        )
        async with self._turns:
            answer = await self._ask(task, content)
        if "error" in answer:
            raise DocumentUnreadable(answer["error"])
        return _cut_document(answer)

    async def close(self) -> None:
        """End the processes."""
        if self._closing is not None:
            self._closing.cancel()
        idle, self._idle = self._idle, []
        for process in idle:
            await process.end()

    async def _ask(self, task: ReadingTask, content: bytes) -> Mapping[str, Any]:
        if self._idle:
            # It may have ended since without having been asked anything: no fault of the document.
            with contextlib.suppress(EOFError, OSError):
                return await self._ask_one(self._idle.pop(), task, content)
        process = await _Process.start(most_memory=self._limits.document_memory_bytes)
        try:
            return await self._ask_one(process, task, content)
        except (EOFError, OSError) as error:
            raise self._gave_up(task) from error

    async def _ask_one(
        self, process: _Process, task: ReadingTask, content: bytes
    ) -> Mapping[str, Any]:
        try:
            async with asyncio.timeout(task.seconds * _PATIENCE):
                return await process.ask(task, content)
        except TimeoutError as error:
            raise self._gave_up(task) from error
        finally:
            if process.is_between:
                self._keep(process)
            else:
                # What it would answer is for nobody.
                await process.end()

    def _gave_up(self, task: ReadingTask) -> ReaderFailed:
        return ReaderFailed(
            f"it could not be read in {task.seconds:g} s (limits.document_seconds) and with "
            f"{self._limits.document_memory_bytes} bytes of memory: it is damaged, or much "
            "larger inside than outside"
        )

    def _keep(self, process: _Process) -> None:
        """Keep a process for the next document, if one comes soon."""
        self._idle.append(process)
        if self._closing is not None:
            self._closing.cancel()
        loop = asyncio.get_running_loop()
        self._closing = loop.call_later(self._limits.idle_reader_seconds, self._end_idle)

    def _end_idle(self) -> None:
        self._closing = None
        while self._idle:
            self._idle.pop().leave()


class _Process:
    """A process that reads documents.

    Started by `subprocess` in a thread, which uses vfork: an event loop of libuv forks, and what
    gRPC does in a forked process may end it.

    Attributes:
        is_between: Whether it has answered all that it was asked.
    """

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        questions: asyncio.StreamWriter,
        answers: asyncio.StreamReader,
        answering: asyncio.ReadTransport,
    ) -> None:
        self._process = process
        self._questions = questions
        self._answers = answers
        self._answering = answering
        self._ending: asyncio.Future[int] | None = None
        self.is_between = True

    @classmethod
    async def start(cls, *, most_memory: int) -> _Process:
        process = await asyncio.to_thread(
            subprocess.Popen,
            [sys.executable, "-P", "-m", _MODULE, str(most_memory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # A damaged file makes libraries remark on whatever they like.
            stderr=subprocess.DEVNULL,
            # No secret of the host's environment comes where documents are read.
            env=_environment(),
            cwd="/",
        )
        loop = asyncio.get_running_loop()
        answers = asyncio.StreamReader()
        answering, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(answers), _given(process.stdout)
        )
        transport, protocol = await loop.connect_write_pipe(
            lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), _given(process.stdin)
        )
        questions = asyncio.StreamWriter(transport, protocol, None, loop)
        return cls(process, questions, answers, answering)

    @property
    def has_ended(self) -> bool:
        """Whether the system has ended it."""
        return self._process.poll() is not None

    async def ask(self, task: ReadingTask, content: bytes) -> Mapping[str, Any]:
        self.is_between = False
        # What is closed already is told by an error of the event loop's own, whichever that is.
        if self._questions.is_closing():
            raise EOFError("the process that reads documents has ended")
        self._questions.write(json.dumps(asdict(task)).encode() + b"\n" + content)
        await self._questions.drain()
        length = int(await self._answers.readline() or b"-1")
        if length < 0:
            raise EOFError("the process that reads documents has ended")
        answer: Mapping[str, Any] = json.loads(await self._answers.readexactly(length))
        self.is_between = True
        return answer

    def leave(self) -> None:
        """Let it end, which it does with its input; it is waited for beside everything else."""
        self._close()
        self._ending = asyncio.get_running_loop().run_in_executor(None, self._process.wait)

    def kill(self) -> None:
        self._process.kill()

    def _close(self) -> None:
        self._questions.close()
        self._answering.close()

    async def end(self) -> None:
        self._close()
        self.kill()
        await asyncio.to_thread(self._process.wait)


def _given(pipe: IO[bytes] | None) -> IO[bytes]:
    if pipe is None:
        raise ValueError("a process that reads documents is spoken to by its streams")
    return pipe


def _environment() -> dict[str, str]:
    source = str(Path(host_service.__file__).parents[1])
    kept = {name: os.environ[name] for name in ("LANG", "LC_ALL") if name in os.environ}
    return {**kept, "PYTHONPATH": os.pathsep.join([source, *filter(None, sys.path)])}


def _cut_document(answer: Mapping[str, Any]) -> CutDocument:
    parts = [
        Part(position=part["position"], headings=tuple(part["headings"]), page=part["page"])
        for part in answer["parts"]
    ]
    return CutDocument(
        text=answer["text"],
        title=answer["title"],
        passages=[
            Passage(position, length, parts[i]) for position, length, i in answer["passages"]
        ],
    )
