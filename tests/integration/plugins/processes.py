"""Looking at processes from outside."""

import asyncio
from collections.abc import Callable
from pathlib import Path


def is_alive(process: int) -> bool:
    """Whether a process runs; one that only waits to be collected does not."""
    try:
        stat = Path(f"/proc/{process}/stat").read_bytes()
    except FileNotFoundError:
        return False
    return stat.rpartition(b")")[2].split()[0] not in (b"Z", b"X")


def descriptors(process: int) -> dict[int, str]:
    """What a process holds open: number and target."""
    folder = Path(f"/proc/{process}/fd")
    return {int(entry.name): str(entry.readlink()) for entry in folder.iterdir()}


def mode_of(path: Path) -> int | None:
    """The type and permissions of a file; None when it is not there."""
    try:
        return path.stat().st_mode
    except FileNotFoundError:
        return None


def parent(process: int) -> int:
    """A process's parent."""
    stat = Path(f"/proc/{process}/stat").read_bytes()
    return int(stat.rpartition(b")")[2].split()[1])


async def eventually(holds: Callable[[], bool], *, timeout_seconds: float = 5.0) -> None:
    """Waits until something outside of this process holds."""
    async with asyncio.timeout(timeout_seconds):
        while not holds():  # noqa: ASYNC110 - other processes set no event of ours
            await asyncio.sleep(0.01)


async def read_numbers(file: Path, count: int) -> list[int]:
    """Waits until a file has so many numbers, one a line."""

    def numbers() -> list[int]:
        return [int(line) for line in file.read_text().split()] if file.exists() else []

    await eventually(lambda: len(numbers()) >= count)
    return numbers()
