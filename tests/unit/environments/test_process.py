"""Installers run under a guardian: what they print is harmless, and nothing of them is left."""

import asyncio
import os
from pathlib import Path

import pytest

from host_service.environments import BuildFailed
from host_service.environments.process import run_installer

ENVIRONMENT = {"PATH": "/usr/bin:/bin"}


async def shell(script: str, folder: Path) -> tuple[int, list[str]]:
    lines: list[str] = []
    code = await run_installer(
        ["/bin/sh", "-c", script], folder=folder, environment=ENVIRONMENT, on_line=lines.append
    )
    return code, lines


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


async def test_lines_come_as_they_are_printed_and_the_code_at_the_end(tmp_path: Path) -> None:
    code, lines = await shell("pwd; echo two >&2; printf three; exit 3", tmp_path)
    assert code == 3
    assert sorted(lines) == sorted([str(tmp_path), "two", "three"])


async def test_installer_that_a_signal_ends_has_failed(tmp_path: Path) -> None:
    assert await shell("kill -9 $$", tmp_path) == (137, [])


async def test_what_is_printed_cannot_drive_a_terminal(tmp_path: Path) -> None:
    script = r"printf '\033[31mred\033[0m\a\n 10%%\r 99%%\r\n\n\377\n'; head -c 9000 /dev/zero"
    _, lines = await shell(script, tmp_path)
    assert lines[:4] == ["red\\x07", " 10%", " 99%", "\ufffd"]
    assert len(lines) == 5
    assert len(lines[4]) < 5 * 4096


async def test_environment_is_only_what_it_is_given(tmp_path: Path) -> None:
    _, lines = await shell("env", tmp_path)
    # The others are the shell's own, and Python's for a locale that nobody chose (PEP 538).
    names = {line.partition("=")[0] for line in lines}
    assert "PATH" in names
    assert names <= {"PATH", "PWD", "SHLVL", "_", "OLDPWD", "LC_CTYPE"}


async def test_program_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(BuildFailed, match=r"^/no/such/uv could not be started: No such file"):
        await run_installer(
            ["/no/such/uv"], folder=tmp_path, environment=ENVIRONMENT, on_line=lambda _line: None
        )


async def test_what_an_installer_leaves_running_is_ended(tmp_path: Path) -> None:
    script = "setsid sleep 300 >/dev/null 2>&1 & echo $!"
    code, (process,) = await shell(script, tmp_path)
    assert code == 0
    assert not is_alive(int(process))


async def test_installer_whose_caller_leaves_is_ended_with_all_of_it(tmp_path: Path) -> None:
    printed: asyncio.Queue[str] = asyncio.Queue()
    script = "sleep 300 & echo $!; echo $$; wait"
    running = asyncio.create_task(
        run_installer(
            ["/bin/sh", "-c", script],
            folder=tmp_path,
            environment=ENVIRONMENT,
            on_line=printed.put_nowait,
        )
    )
    processes = [int(await printed.get()) for _ in range(2)]
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert [each for each in processes if is_alive(each)] == []
