"""Runs the command line on a data folder: in this process where that is enough, else as its own.

In this process a command is what `runmesh` runs, given its arguments, its environment and its three
streams; it saves the second that starting Python costs. What is about signals, terminals, child
processes or a host is run as a process.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import pytest

from host_service.cli.app import run
from tests.echo_agent import AGENTS

RUNMESH = Path(sys.executable).with_name("runmesh")
REAPER = Path(__file__).with_name("reaper.py")

_READY_SECONDS = 30.0
_POLL_SECONDS = 0.02
# A model that the tests' own environment names is none of theirs.
_OF_MODELS = frozenset({"OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL"})


@dataclass(frozen=True, slots=True)
class Ran:
    """A command that has ended.

    Attributes:
        status: Its exit status.
        out: What it wrote to standard output.
        err: What it wrote to standard error.
    """

    status: int
    out: str
    err: str

    def json(self) -> Any:
        """Its output as JSON."""
        return json.loads(self.out)

    def error_line(self) -> str:
        """Its only line on standard error, with nothing on standard output."""
        assert self.out == "", self.out
        assert re.fullmatch(r"runmesh: [^\n]+\n", self.err), self.err
        return self.err.removeprefix("runmesh: ").rstrip("\n")


@dataclass(frozen=True, slots=True)
class CommandLine:
    """The command line on one data folder.

    Attributes:
        data: The data folder.
        echoes: Whether the agent `default` of a host that is started echoes.
    """

    data: Path
    echoes: bool = True

    def __call__(
        self,
        *arguments: str | bytes,
        sent: bytes | str = b"",
        environment: Mapping[str, str] | None = None,
    ) -> Ran:
        """Runs a command in this process."""
        with (
            _streams(sent.encode() if isinstance(sent, str) else sent) as (out, err),
            pytest.MonkeyPatch.context() as patch,
        ):
            patch.setenv("RUNMESH_DATA", str(self.data))
            for name, value in (environment or {}).items():
                patch.setenv(name, value)
            status = run([os.fsdecode(argument) for argument in arguments])
            return Ran(status, _content(out), _content(err))

    def process(
        self, *arguments: str, sent: str = "", environment: Mapping[str, str] | None = None
    ) -> Ran:
        """Runs a command as a process and waits for its end."""
        return _ran([RUNMESH, *arguments], sent, self.environment(environment))

    @contextmanager
    def started(self, *arguments: str) -> "Iterator[subprocess.Popen[bytes]]":
        """Runs a command as a process that a test talks to; it is gone at the end."""
        process = subprocess.Popen(
            [RUNMESH, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environment(),
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def and_leaves_nothing(self, *arguments: str, sent: str) -> Ran:
        """Runs a command, and fails when a process that it started outlives it."""
        return _ran([sys.executable, REAPER, RUNMESH, *arguments], sent, self.environment())

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """The environment of a command."""
        told = {name: value for name, value in os.environ.items() if name not in _OF_MODELS}
        own = {"RUNMESH_DATA": str(self.data)}
        if self.echoes:
            own["RUNMESH_CONFIG"] = str(_echo_file(self.data))
        return {**told, **own, **(more or {})}

    def is_ready(self, process_id: int) -> bool:
        """Whether a host's process says that it is ready."""
        return (self.data / "host.json").exists() and self.host_file()["pid"] == process_id

    def host_file(self) -> dict[str, Any]:
        """What the running host says of itself."""
        told: dict[str, Any] = json.loads((self.data / "host.json").read_text())
        return told


def _echo_file(data: Path) -> Path:
    """A configuration beside a data folder whose agent `default` echoes."""
    file = data.with_name(f"{data.name}-agents.yaml")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(AGENTS)
    return file


def _ran(words: Sequence[str | Path], sent: str, environment: Mapping[str, str]) -> Ran:
    ran = subprocess.run(
        words, check=False, input=sent.encode(), capture_output=True, timeout=45, env=environment
    )
    return Ran(ran.returncode, ran.stdout.decode(), ran.stderr.decode())


@contextmanager
def _streams(given: bytes) -> Iterator[tuple[TextIO, TextIO]]:
    """Gives this process other standard streams: files, as a shell's redirections do."""
    with (
        tempfile.TemporaryFile("r+", encoding="utf-8") as source,
        tempfile.TemporaryFile("w+", encoding="utf-8") as out,
        tempfile.TemporaryFile("w+", encoding="utf-8") as err,
        pytest.MonkeyPatch.context() as patch,
    ):
        source.buffer.write(given)
        source.seek(0)
        for name, stream in (("stdin", source), ("stdout", out), ("stderr", err)):
            patch.setattr(sys, name, stream)
        yield out, err


def _content(stream: TextIO) -> str:
    stream.flush()
    stream.seek(0)
    return stream.read()


@contextmanager
def running(data: Path, *arguments: str) -> Iterator[CommandLine]:
    """Runs `runmesh up` on a data folder until the end of the context."""
    data.mkdir(parents=True, exist_ok=True)
    log = data / "up.log"
    if "--config" not in arguments:
        arguments = ("--config", str(_echo_file(data)), *arguments)
    with log.open("wb") as output:
        host = subprocess.Popen(
            [RUNMESH, "up", "--data", data, "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0",
             *arguments],
            stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            env={name: value for name, value in os.environ.items() if name not in _OF_MODELS},
        )  # fmt: skip
    try:
        command_line = CommandLine(data)
        wait_for(lambda: command_line.is_ready(host.pid) or host.poll() is not None)
        assert host.poll() is None, log.read_text()
        yield command_line
    finally:
        host.send_signal(signal.SIGTERM)
        host.wait(45)


def wait_for(condition: Any, seconds: float = _READY_SECONDS) -> None:
    """Waits until something holds that happens in another process."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(_POLL_SECONDS)
