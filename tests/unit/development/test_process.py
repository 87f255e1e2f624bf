"""The process of a plugin in its author's hands, and the one that stands by."""

import asyncio
import logging
import os
import sys
import time
from pathlib import Path

import pytest

from host_service.development.process import DevelopmentProcess, Recipe
from host_service.supervisor import Limits, SocketFolder


def _python(folder: Path, text: str) -> Recipe:
    (folder / "main.py").write_text(text)
    return Recipe(
        plugin_id="acme/weather",
        folder=folder,
        environment={"PATH": os.environ["PATH"]},
        limits=Limits(),
        python=Path(sys.executable),
        module="main",
    )


def _command(folder: Path, *words: str) -> Recipe:
    return Recipe(
        plugin_id="acme/weather",
        folder=folder,
        environment={"PATH": os.environ["PATH"], "RUNMESH_ATTACH": "unix:/host"},
        limits=Limits(),
        command=words,
    )


def _number_in(file: Path) -> int:
    """The number in a file that somebody is about to write."""
    late_at = time.monotonic() + 5
    while not (file.exists() and file.read_text().endswith("\n")):
        assert time.monotonic() < late_at
        time.sleep(0.02)
    return int(file.read_text())


@pytest.fixture
def printed(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """What processes print."""
    caplog.set_level(logging.INFO, "runmesh.plugin")
    return caplog


async def test_python_plugin_runs_as_if_started_by_itself(
    tmp_path: Path, printed: pytest.LogCaptureFixture
) -> None:
    text = (
        "import sys, os, inspect\n"
        "class Here: pass\n"
        "print(__name__, sys.argv, sys.path[0] == os.getcwd(), inspect.getfile(Here))\n"
        "print(sys.modules['__main__'].Here is Here)\n"
    )
    with SocketFolder.create() as sockets:
        recipe = _python(tmp_path, text)
        process = await DevelopmentProcess.start(recipe, place=sockets.new_path())
        assert str(await process.ended()) == "exited with code 0"
        await process.stop(1.0)
    main = tmp_path / "main.py"
    assert printed.messages == [
        f"acme/weather: __main__ ['{main}'] True {main}",
        "acme/weather: True",
    ]


async def test_prepared_process_runs_nothing_of_the_plugin_before_it_is_told_to(
    tmp_path: Path, printed: pytest.LogCaptureFixture
) -> None:
    with SocketFolder.create() as sockets:
        recipe = _python(tmp_path, "print('before')\n")
        process = await DevelopmentProcess.prepare(recipe, place=sockets.new_path())
        await asyncio.sleep(0.7)
        assert not process.has_ended
        assert printed.messages == []
        # What counts is what is there when it starts, not when it was prepared.
        (tmp_path / "main.py").write_text("print('after')\n")
        told_at = time.monotonic()
        process.go()
        await process.ended()
        assert time.monotonic() - told_at < 1.0
        await process.stop(1.0)
    assert printed.messages == ["acme/weather: after"]


async def test_prepared_process_that_nobody_needs_is_ended_and_leaves_nothing(
    tmp_path: Path,
) -> None:
    with SocketFolder.create() as sockets:
        recipe = _python(tmp_path, "print('never')\n")
        process = await DevelopmentProcess.prepare(recipe, place=sockets.new_path())
        began_at = time.monotonic()
        await process.stop(5.0)
        assert time.monotonic() - began_at < 2.0
        assert str(await process.ended()) == "was killed by signal 15, SIGTERM"
        assert [each.name for each in sockets.path.iterdir()] == ["lock"]


async def test_traceback_of_a_mistake_is_shown_with_the_line_it_is_in(
    tmp_path: Path, printed: pytest.LogCaptureFixture
) -> None:
    with SocketFolder.create() as sockets:
        recipe = _python(tmp_path, "def broken(:\n")
        process = await DevelopmentProcess.start(recipe, place=sockets.new_path())
        assert str(await process.ended()) == "exited with code 1"
        await process.stop(1.0)
    shown = "\n".join(printed.messages)
    assert f'acme/weather:   File "{tmp_path / "main.py"}", line 1' in shown
    assert "acme/weather: SyntaxError: invalid syntax" in shown


async def test_other_program_gets_the_way_to_the_host_and_odd_bytes_break_nothing(
    tmp_path: Path, printed: pytest.LogCaptureFixture
) -> None:
    script = r'printf "\377\033[2Jodd\n"; echo "$RUNMESH_ATTACH"; echo "$RUNMESH_LISTEN" >&2'
    with SocketFolder.create() as sockets:
        place = sockets.new_path()
        process = await DevelopmentProcess.start(
            _command(tmp_path, "/bin/sh", "-c", script), place=place
        )
        await process.ended()
        await process.stop(1.0)
    assert sorted(printed.messages) == [
        "acme/weather: unix:/host",
        f"acme/weather: unix:{place}",
        "acme/weather: \ufffdodd",
    ]


async def test_more_lines_are_shown_than_a_host_would_log(
    tmp_path: Path, printed: pytest.LogCaptureFixture
) -> None:
    with SocketFolder.create() as sockets:
        process = await DevelopmentProcess.start(
            _command(tmp_path, "seq", "1000"), place=sockets.new_path()
        )
        await process.ended()
        await process.stop(1.0)
    assert printed.messages[-1] == "acme/weather: 1000"
    assert len(printed.messages) == 1000


async def test_end_takes_what_the_process_started_along(tmp_path: Path) -> None:
    script = "sleep 300 & echo $! > child; wait"
    with SocketFolder.create() as sockets:
        process = await DevelopmentProcess.start(
            _command(tmp_path, "/bin/sh", "-c", script), place=sockets.new_path()
        )
        child = await asyncio.to_thread(_number_in, tmp_path / "child")
        await process.stop(1.0)
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)
