"""Opening and closing: which URLs, which errors, and what is left behind."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stores import open_stores
from stores.errors import InvalidDatabaseUrl, StoreClosed, StoreUnavailable
from stores.records import HostRecord
from stores.sql.opening import open_database
from tests.conformance.stores.samples import at

ROOT = Path(__file__).parents[3]

# Writes a hundred facts, says so, and then does what it was told.
WRITING = """
import asyncio, signal, sys
from stores import open_stores
from tests.conformance.stores.samples import at

async def main(url, ending):
    stores = await open_stores(url)
    for number in range(100):
        last = stores.hosts.register(f"host-{number:03}", "start", at(number))
    await last
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    print("written", flush=True)
    if ending != "forgets":
        await stop.wait()
        await stores.close()

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("no url", "cannot be read"),
        ("mysql://somewhere/x", "of kind 'mysql' are not known"),
        ("sqlite://", "must be a file"),
        ("sqlite:///:memory:", "must be a file"),
        ("sqlite:///file:x?mode=memory", "must be a file"),
    ],
)
async def test_url_of_another_form_is_refused_with_the_forms_that_are_known(
    url: str, told: str
) -> None:
    with pytest.raises(InvalidDatabaseUrl, match=told) as caught:
        await open_stores(url)
    assert "sqlite:///path/to/file" in str(caught.value)


async def test_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match=r"missing/x\.db' does not exist: create it"):
        await open_stores(f"sqlite:///{tmp_path}/missing/x.db")


async def test_what_is_no_database_is_told(tmp_path: Path) -> None:
    path = tmp_path / "letter.db"
    path.write_text("Dear reader, " * 100)
    with pytest.raises(StoreUnavailable, match=r"letter\.db: file is not a database"):
        await open_stores(f"sqlite:///{path}")


async def test_server_that_is_not_there_is_told_without_the_password(tmp_path: Path) -> None:
    url = f"postgresql+psycopg://me:secret@/name?host={tmp_path}"
    with pytest.raises(StoreUnavailable, match="cannot open the database postgresql") as caught:
        await open_stores(url)
    assert "secret" not in str(caught.value)


async def test_unknown_durability_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="FULL or NORMAL, not 'OFF'"):
        await open_stores(f"sqlite:///{tmp_path}/x.db", synchronous="OFF")  # type: ignore[arg-type]


async def test_two_databases_may_be_made_at_once(tmp_path: Path) -> None:
    urls = [f"sqlite:///{tmp_path}/{name}.db" for name in "abcd"]
    for stores in await asyncio.gather(*map(open_stores, urls)):
        await stores.ping()
        await stores.close()


@pytest.mark.parametrize(("synchronous", "level"), [("FULL", 2), ("NORMAL", 1)])
async def test_commits_are_as_durable_as_asked(
    tmp_path: Path, synchronous: str, level: int
) -> None:
    database = open_database(f"sqlite:///{tmp_path}/x.db", synchronous=synchronous)
    connection = database.connect()
    for pragma, value in (("synchronous", level), ("journal_mode", "wal"), ("foreign_keys", 1)):
        assert connection._driver.execute(f"PRAGMA {pragma}").fetchone() == (value,)
    connection.close()


async def test_clean_close_leaves_one_file(tmp_path: Path) -> None:
    stores = await open_stores(f"sqlite:///{tmp_path}/x.db")
    await stores.ping()
    await stores.hosts.register("host", "start", at(0))
    assert (tmp_path / "x.db-wal").exists()
    await stores.close()
    assert names_in(tmp_path) == ["x.db"]


async def test_closed_stores_say_so_and_close_again(tmp_path: Path) -> None:
    stores = await open_stores(f"sqlite:///{tmp_path}/x.db")
    await stores.close()
    await stores.close()
    with pytest.raises(StoreClosed):
        await stores.ping()
    with pytest.raises(StoreClosed):
        await stores.hosts.register("host", "start", at(0))
    with pytest.raises(StoreClosed):
        await stores.hosts.get("host")


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def write_and_end(url: str, ending: str) -> int:
    process = subprocess.Popen(
        [sys.executable, "-c", WRITING, url, ending], cwd=ROOT, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    with process, process.stdout:
        assert process.stdout.readline() == b"written\n"
        if ending != "forgets":
            process.send_signal(signal.SIGTERM if ending == "closes" else signal.SIGKILL)
        return process.wait(5)


@pytest.mark.parametrize("ending", ["closes", "forgets", "is killed"])
async def test_process_ends_at_once_and_all_it_wrote_is_there(tmp_path: Path, ending: str) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    assert write_and_end(url, ending) == (-signal.SIGKILL if ending == "is killed" else 0)
    assert (tmp_path / "x.db-wal").exists() is (ending != "closes")
    stores = await open_stores(url)
    hosts = await stores.hosts.list()
    await stores.close()
    assert hosts == [HostRecord(f"host-{n:03}", "start", at(n)) for n in range(100)]
