"""When changes of files are told."""

import asyncio
import time
from pathlib import Path

import pytest

from host_service.development.source_files import SourceFiles
from host_service.development.watch import FileWatch


@pytest.fixture
def watch(tmp_path: Path) -> FileWatch:
    """Watches a folder with two files."""
    for name in ("one.py", "two.py"):
        (tmp_path / name).write_text("x = 1\n")
    return FileWatch(SourceFiles(tmp_path))


async def _next(watch: FileWatch) -> list[str]:
    async with asyncio.timeout(5):
        return await watch.changed()


async def test_change_is_told_within_a_second(tmp_path: Path, watch: FileWatch) -> None:
    waiting = asyncio.create_task(_next(watch))
    await asyncio.sleep(0.3)
    assert not waiting.done()
    saved_at = time.monotonic()
    (tmp_path / "one.py").write_text("x = 22\n")
    assert await waiting == ["one.py"]
    assert time.monotonic() - saved_at < 1.0


async def test_file_saved_by_rename_is_told_by_its_own_name(
    tmp_path: Path, watch: FileWatch
) -> None:
    (tmp_path / ".one.py.new").write_text("x = 22\n")
    (tmp_path / ".one.py.new").replace(tmp_path / "one.py")
    assert await _next(watch) == ["one.py"]


async def test_files_saved_one_by_one_are_told_together(tmp_path: Path, watch: FileWatch) -> None:
    waiting = asyncio.create_task(_next(watch))
    for number in range(10):
        (tmp_path / f"new{number}.py").write_text("x = 1\n")
        await asyncio.sleep(0.02)
    assert len(await waiting) == 10


async def test_file_that_is_written_all_the_time_is_told_all_the_same(
    tmp_path: Path, watch: FileWatch
) -> None:
    async def write() -> None:
        text = ""
        while True:
            text += "x\n"
            (tmp_path / "one.py").write_text(text)
            await asyncio.sleep(0.01)

    writing = asyncio.create_task(write())
    try:
        assert await _next(watch) == ["one.py"]
    finally:
        writing.cancel()


async def test_change_between_two_questions_is_not_missed(tmp_path: Path, watch: FileWatch) -> None:
    (tmp_path / "one.py").write_text("x = 22\n")
    assert await _next(watch) == ["one.py"]
    (tmp_path / "two.py").unlink()
    assert await _next(watch) == ["two.py"]


async def test_question_that_is_called_off_forgets_nothing(
    tmp_path: Path, watch: FileWatch
) -> None:
    waiting = asyncio.create_task(watch.changed())
    (tmp_path / "one.py").write_text("x = 22\n")
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert await _next(watch) == ["one.py"]
