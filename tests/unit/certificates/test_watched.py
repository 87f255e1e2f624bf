"""Tests of files that are read again when they change."""

import asyncio
import logging
from pathlib import Path

import pytest

from host_service.certificates.errors import CertificateUnusable
from host_service.certificates.watched import Watched, keep_watched


def _watch(path: Path) -> Watched[str]:
    def read() -> str:
        text = path.read_text() if path.exists() else ""
        if not text.startswith("good"):
            raise CertificateUnusable(f"{path.name} is {text!r}", "mend it")
        return text

    return Watched("files", [path], read)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_text("good 1")
    return path


def _replace(path: Path, text: str) -> None:
    new = path.with_name("new")
    new.write_text(text)
    new.replace(path)


def test_files_that_did_not_change_are_not_read_again(path: Path) -> None:
    watched = _watch(path)
    assert not watched.look()
    assert (watched.value, watched.version) == ("good 1", 1)


def test_a_change_gives_a_new_value_and_version(path: Path) -> None:
    watched = _watch(path)
    _replace(path, "good 2")
    assert watched.look()
    assert (watched.value, watched.version) == ("good 2", 2)
    assert not watched.look()


def test_what_cannot_be_used_from_the_start_is_refused(path: Path) -> None:
    path.write_text("bad")
    with pytest.raises(CertificateUnusable):
        _watch(path)


def test_what_cannot_be_used_leaves_the_old_value_and_is_told_once(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    watched = _watch(path)
    _replace(path, "bad")
    for _ in range(5):
        assert not watched.look()
    assert (watched.value, watched.version) == ("good 1", 1)
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert "file is 'bad'" in caplog.text


def test_what_is_wrong_for_a_moment_is_not_told(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    watched = _watch(path)
    _replace(path, "bad")
    assert not watched.look()
    _replace(path, "good 2")
    assert watched.look()
    assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []


def test_another_fault_is_told_as_well_and_a_mended_file_is_taken(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    watched = _watch(path)
    for text in ("bad", "worse", "bad"):
        _replace(path, text)
        watched.look()
        watched.look()
    path.unlink()
    watched.look()
    watched.look()
    told = [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]
    assert len(told) == 4
    _replace(path, "good 2")
    assert watched.look()
    assert watched.value == "good 2"


async def test_who_waits_for_a_change_is_woken(path: Path) -> None:
    watched = _watch(path)
    watching = asyncio.create_task(keep_watched(watched, look_seconds=0.01))
    waiting = asyncio.create_task(watched.changed(since=watched.version))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    _replace(path, "good 2")
    await asyncio.wait_for(waiting, 5)
    # One that comes late hears of what it missed.
    await asyncio.wait_for(watched.changed(since=1), 5)
    watching.cancel()
