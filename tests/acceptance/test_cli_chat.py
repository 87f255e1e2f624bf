"""`runmesh chat`, as people and scripts use it."""

import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.acceptance.commands import RUNMESH, CommandLine, wait_for
from tests.integration.host.host_process import HostProcess

# Makes the terminal the one whose Ctrl-C belongs to the command, as a shell does.
_TAKE_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""

# How a prompt says that it now takes pasted text as one.
_READY = "\x1b[?2004h"
GREETING = "hello, 世界 👩‍👩‍👧\n"


def test_a_message_comes_back_byte_for_byte_from_a_host_of_its_own(alone: CommandLine) -> None:
    first = alone.and_leaves_nothing("chat", "--with-host", sent=GREETING)
    assert (first.status, first.out, first.err) == (0, GREETING, "")

    again = alone.and_leaves_nothing("chat", "--with-host", sent=f"{GREETING}second\n\nthird")
    assert (again.status, again.out, again.err) == (0, f"{GREETING}second\nthird\n", "")

    assert not (alone.data / "host.json").exists()
    assert (alone.data / "host.log").stat().st_mode & 0o777 == 0o600


def test_a_host_that_cannot_start_is_told_in_its_own_words(alone: CommandLine) -> None:
    ran = alone.process(
        "chat", "--with-host", sent=GREETING, environment={"RUNMESH_DATABASE": "odd://x"}
    )
    assert ran.status == 1
    assert "odd" in ran.error_line()


def test_a_chat_that_is_killed_takes_its_host_along(alone: CommandLine) -> None:
    with alone.started("chat", "--with-host"):
        wait_for((alone.data / "host.json").exists)
        host = alone.host_file()["pid"]
    wait_for(lambda: not _is_alive(host), seconds=10)


def test_a_host_that_runs_already_is_used_and_left_alone(running_host: CommandLine) -> None:
    before = running_host.host_file()
    ran = running_host("chat", "--with-host", sent=GREETING)
    assert (ran.status, ran.out) == (0, GREETING)
    assert running_host.host_file() == before
    assert running_host("chat", GREETING.strip()).out == GREETING


def test_the_messages_of_one_chat_are_one_conversation(running_host: CommandLine) -> None:
    running_host("chat", "--conversation", "together", sent="one\ntwo\n")
    newest = running_host("runs", "list", "--limit", "2", "--json").json()
    keys = {run["conversation_key"] for run in newest}
    assert len(keys) == 1
    listed = running_host("runs", "list", "--conversation", keys.pop(), "--json").json()
    assert [run["run_id"] for run in listed] == [run["run_id"] for run in newest]


def test_an_answer_streams_while_it_is_made(running_host: CommandLine) -> None:
    with running_host.started("chat", "go", "--agent", "slow") as chat:
        first = _first_output(chat)
        assert set(first) == {ord("x")}
        assert len(first) < 64
        assert chat.poll() is None
        chat.send_signal(signal.SIGINT)
        chat.communicate(timeout=20)


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_cancels_the_run(
    running_host: CommandLine, number: signal.Signals, status: int
) -> None:
    with running_host.started("chat", "--agent", "slow") as chat:
        assert chat.stdin is not None
        chat.stdin.write(b"go\n")
        chat.stdin.flush()
        first = _first_output(chat)
        chat.send_signal(number)
        rest, err = chat.communicate(timeout=20)
    assert chat.returncode == status, err
    assert (first + rest).endswith(b"x\n")
    [run] = running_host("runs", "list", "--agent", "slow", "--limit", "1", "--json").json()
    assert run["status"] == "RUN_STATUS_CANCELLED"
    assert err.decode() == f"runmesh: run {run['run_id']} was cancelled\n"


def test_a_reader_that_goes_away_ends_the_chat_quietly(running_host: CommandLine) -> None:
    with running_host.started("chat", "go", "--agent", "slow") as chat:
        _first_output(chat)
        assert chat.stdout is not None
        assert chat.stderr is not None
        chat.stdout.close()
        chat.stdout = None
        assert chat.wait(20) == 141
        assert chat.stderr.read() == b""
    [run] = running_host("runs", "list", "--agent", "slow", "--limit", "1", "--json").json()
    assert run["status"] == "RUN_STATUS_CANCELLED"


def test_a_failed_run_is_one_line_and_an_exit_status(running_host: CommandLine) -> None:
    ran = running_host("chat", "hello", "--agent", "failing")
    [run] = running_host("runs", "list", "--agent", "failing", "--limit", "1", "--json").json()
    assert ran.status == 1
    assert ran.out == "Before the fault. \n"
    assert ran.err == (
        "runmesh: the run failed: echo.asked: the configuration asks for a failure: "
        f"the same message may succeed later; 'runmesh runs show {run['run_id']}' shows more\n"
    )


def test_lines_after_a_refused_one_are_still_answered(running_host: CommandLine) -> None:
    ran = running_host("chat", sent="before\nnul \x00 here\nafter\n")
    assert ran.status == 1
    assert ran.out == "before\nafter\n"
    assert ran.err.startswith("runmesh: INVALID_ARGUMENT: ")
    assert "event.input.text" in ran.err
    assert "U+0000" in ran.err
    assert ran.err.count("\n") == 1


def test_bytes_that_are_no_text_are_replaced_and_told(running_host: CommandLine) -> None:
    ran = running_host("chat", sent=b"ok\ngb \xc4\xe3\n")
    assert ran.status == 0
    assert ran.out == "ok\ngb \ufffd\ufffd\n"
    assert ran.err == "runmesh: line 2 is not UTF-8: what is not was replaced by U+FFFD\n"
    assert running_host("chat", b"gb \xc4\xe3").out == "gb \ufffd\ufffd\n"


def test_an_agent_that_is_not_there_is_named(running_host: CommandLine) -> None:
    ran = running_host("chat", "hello", "--agent", "nobody")
    assert ran.status == 1
    line = ran.error_line()
    assert "nobody" in line
    assert "'runmesh agents list' shows the agents" in line


def test_a_long_message_of_many_kinds_of_text_survives(running_host: CommandLine) -> None:
    text = "word 世界 👩‍👩‍👧 e\u0301 עברית \t" * 500
    assert running_host("chat", sent=f"{text}\n").out == f"{text}\n"


def test_a_message_over_the_limit_is_refused_with_size_and_limit(
    running_host: CommandLine,
) -> None:
    ran = running_host("chat", sent=b"x" * (3 * 1024 * 1024) + b"\n")
    assert ran.status == 1
    assert "PAYLOAD_TOO_LARGE" in ran.error_line()


def test_a_conversation_on_a_terminal(running_host: CommandLine) -> None:
    terminal = Terminal(running_host, "chat")
    for typed, seen in (("hello there\r", "hello there"), (_pasted("two\nlines") + "\r", "lines")):
        terminal.type(typed)
        # Once as it is typed, and once as the answer.
        terminal.expect(seen)
        terminal.expect(seen)
        terminal.expect(_READY)
    terminal.type("\x04")
    assert terminal.end() == 0


def test_a_terminal_says_first_which_agent_and_model_answer(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with HostProcess(data, echoes=False) as host:
        wait_for(lambda: "runmesh/local-agent is serving" in host.log())
        who = "agent default on plugin:runmesh/local-agent/default, model rehearsal"
        terminal = Terminal(CommandLine(data), "chat", first=who)
        terminal.expect("no language model")
        terminal.expect(_READY)
        terminal.type("\x04")
        assert terminal.end() == 0


def test_ctrl_c_cancels_an_answer_and_the_chat_goes_on(running_host: CommandLine) -> None:
    terminal = Terminal(running_host, "chat", "--agent", "slow")
    terminal.type("go\r")
    terminal.expect("xxxx")
    terminal.type("\x03")
    terminal.expect("was cancelled")
    terminal.expect(_READY)
    terminal.type("half a message\x03")
    terminal.expect(_READY)
    terminal.type("\x04")
    assert terminal.end() == 0


def _pasted(text: str) -> str:
    return f"\x1b[200~{text}\x1b[201~"


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, command_line: CommandLine, *arguments: str, first: str = _READY) -> None:
        self._screen = ""
        self._process, self._keyboard = _on_terminal(command_line, *arguments)
        self.expect(first)

    def type(self, text: str) -> None:
        os.write(self._keyboard, text.encode())

    def expect(self, text: str, seconds: float = 20.0) -> None:
        """Waits until a text appears after what was expected before."""
        deadline = time.monotonic() + seconds
        while text not in self._screen:
            assert self._read(deadline - time.monotonic()), f"no {text!r} in {self._screen!r}"
        self._screen = self._screen.partition(text)[2]

    def end(self) -> int:
        """Waits until the command has ended; returns its exit status."""
        while self._read(20.0):
            continue
        os.close(self._keyboard)
        return self._process.wait(20)

    def _read(self, seconds: float) -> bool:
        if not select.select([self._keyboard], [], [], max(0.0, seconds))[0]:
            return False
        try:
            shown = os.read(self._keyboard, 65536)
        except OSError:
            # How Linux tells that nobody has the other side open any more.
            return False
        self._screen += shown.decode(errors="replace").replace("\r\n", "\n")
        return bool(shown)


def _on_terminal(
    command_line: CommandLine, *arguments: str
) -> "tuple[subprocess.Popen[bytes], int]":
    keyboard, screen = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", _TAKE_TERMINAL, RUNMESH, *arguments],
        stdin=screen,
        stdout=screen,
        stderr=screen,
        start_new_session=True,
        env=command_line.environment({"TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"}),
    )
    os.close(screen)
    return process, keyboard


def _first_output(process: "subprocess.Popen[bytes]") -> bytes:
    assert process.stdout is not None
    return os.read(process.stdout.fileno(), 64)


def _is_alive(process_id: int) -> bool:
    try:
        state = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
