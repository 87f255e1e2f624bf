"""Everything moves between engines, is checked on the way, and is there whole or not at all."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from stores import Stores, open_stores
from stores.blobs.names import BlobName
from stores.errors import BlobLost, InvalidRecord, StoreError, TransferDamaged, TransferRefused
from stores.knowledge_records import pack_vector
from stores.records import ArtifactHeader, RunFacts
from stores.sql.opening import open_database
from stores.sql.tables import metadata, transcript_items
from stores.transfer import export_database, import_database
from tests.conformance.stores.knowledge_samples import MODEL, a_base, a_header, chunks_of
from tests.conformance.stores.samples import NOON, a_run, accepted, an_event, an_item
from tests.conformance.stores.transferring import Make, fill_oddly, make_database

__all__ = ["make_database"]

ENGINES = ("sqlite", "postgresql")
BLOB = bytes(range(256)) * 5_000


@pytest.fixture
def blobs(tmp_path: Path) -> str:
    return (tmp_path / "blobs").as_uri()


def odd_database(make: Make, engine: str, blobs_url: str) -> str:
    url = make(engine)
    name = fill_oddly(open_database(url, synchronous="FULL"), BLOB)
    path = Path(blobs_url.removeprefix("file://"), name.path)
    path.parent.mkdir(parents=True)
    path.write_bytes(BLOB)
    return url


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def count_rows(url: str) -> int:
    with open_database(url, synchronous="FULL").engine.connect() as connection:
        return sum(
            connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()
            for table in metadata.sorted_tables
        )


@pytest.mark.parametrize("source", ENGINES)
@pytest.mark.parametrize("target", ENGINES)
async def test_what_was_imported_exports_as_what_it_was(
    source: str, target: str, make_database: Make, tmp_path: Path, blobs: str
) -> None:
    first = await export_database(
        odd_database(make_database, source, blobs), tmp_path / "first", blobs_url=blobs
    )
    other_blobs = (tmp_path / "other").as_uri()
    other = make_database(target)
    taken = await import_database(other, tmp_path / "first", blobs_url=other_blobs)
    again = await export_database(other, tmp_path / "again", blobs_url=other_blobs)
    assert first == taken == again
    assert first.rows == 6 * (len(metadata.sorted_tables) - 1) + 1
    assert (first.blobs, first.blob_bytes) == (1, len(BLOB))
    assert files(tmp_path / "first") == files(tmp_path / "again")


@pytest.mark.parametrize("engine", ENGINES)
async def test_imported_database_goes_on_where_the_exported_one_was(
    engine: str, make_database: Make, tmp_path: Path, blobs: str
) -> None:
    source = await open_stores(make_database("sqlite"), blobs_url=blobs)
    await accepted(source, "run-1")
    await source.ledger.record(RunFacts(run_id="run-1", items=(an_item(text="你好 world"),)))
    header = ArtifactHeader(
        artifact_id="artifact", workspace="acme", bot="helper", conversation_key="talk",
        type="file", created_at=NOON,
    )  # fmt: skip
    await source.artifacts.write(header, _chunks(BLOB))
    await source.close()
    url = make_database(engine)
    await export_database(_url(source_path(tmp_path)), tmp_path / "export", blobs_url=blobs)
    other_blobs = (tmp_path / "other").as_uri()
    await import_database(url, tmp_path / "export", blobs_url=other_blobs)
    target = await open_stores(url, blobs_url=other_blobs)
    try:
        found = await target.transcript.search("talk", "好")
        assert [item.text for item in found.items] == ["你好 world"]
        assert await target.artifacts.read("artifact", offset=0, length=len(BLOB)) == BLOB
        await target.ledger.record(RunFacts(run_id="run-1", items=(an_item("item-2"),)))
        page = await target.transcript.page("talk")
        assert [item.position for item in page.items] == [2, 1]
        event, run = an_event("event-2"), a_run("run-2")
        assert (await target.ledger.accept(event, run).committed).run.run_id == "run-2"
    finally:
        await target.close()


@pytest.mark.parametrize("source", ENGINES)
@pytest.mark.parametrize("target", ENGINES)
async def test_imported_documents_are_found_as_they_were(
    source: str, target: str, make_database: Make, tmp_path: Path
) -> None:
    urls = {name: make_database(engine) for name, engine in (("from", source), ("to", target))}
    before = await open_stores(urls["from"])
    await a_base(before)
    for number in range(3):
        header = a_header(sha256=b"%d" % number, metadata_json=f'{{"n": {number}}}')
        chunks = chunks_of(
            f"run token {number}", f"运行令牌 {number}", vectors=[[1, number], [number, 1]]
        )
        await before.knowledge.put_document(header, chunks)
    staged = await before.knowledge.stage(a_header("next"))
    staged = await before.knowledge.add_chunks(staged, chunks_of("token"))
    answers = [await ask_knowledge(before)]
    await before.close()
    await export_database(urls["from"], tmp_path / "export")
    await import_database(urls["to"], tmp_path / "export")
    after = await open_stores(urls["to"])
    try:
        answers.append(await ask_knowledge(after))
        assert answers[0] == answers[1]
        # It goes on, with numbers that nothing had before.
        await after.knowledge.finish(await after.knowledge.add_chunks(staged, chunks_of("more")))
        hits = await after.knowledge.search_text(["docs"], "token more")
        assert len(hits) == 3
        assert len({hit.chunk.number for hit in hits}) == 3
    finally:
        await after.close()


async def ask_knowledge(stores: Stores) -> list[object]:
    knowledge, vector = stores.knowledge, pack_vector([1, 3])
    return [
        *await knowledge.search_text(["docs"], "token 令牌"),
        *await knowledge.search_text(["docs"], "token", filters_json='{"n": 2}'),
        *await knowledge.search_text(["docs"], "token", filters_json='{"n": 1}'),
        *await knowledge.search_vectors(["docs"], MODEL, vector),
        await knowledge.counts("docs", MODEL),
        await knowledge.documents("docs"),
    ]


def source_path(tmp_path: Path) -> Path:
    return tmp_path / "database-0" / "runmesh.db"


def _url(path: Path) -> str:
    return f"sqlite:///{path}"


async def _chunks(content: bytes) -> AsyncIterator[bytes]:
    yield content


@pytest.mark.parametrize("engine", ENGINES)
async def test_counters_of_deleted_rows_are_not_used_again(
    engine: str, make_database: Make, tmp_path: Path
) -> None:
    source, target = (make_database(engine) for _ in range(2))
    for url in (source, target):
        stores = await open_stores(url)
        if url == source:
            for number in range(3):
                await stores.events.append(an_event(f"event-{number}"))
            await stores.close()
            with open_database(url, synchronous="FULL").engine.begin() as connection:
                connection.execute(sa.text("DELETE FROM events"))
            await export_database(url, tmp_path / "export", blobs_url=(tmp_path / "b").as_uri())
        else:
            await stores.close()
            await import_database(url, tmp_path / "export", blobs_url=(tmp_path / "b").as_uri())
    stores = await open_stores(target)
    await stores.events.append(an_event("event-9"))
    await stores.close()
    with open_database(target, synchronous="FULL").engine.connect() as connection:
        assert connection.execute(sa.text("SELECT position FROM events")).scalar_one() == 4


@pytest.mark.parametrize("engine", ENGINES)
async def test_database_with_content_is_only_replaced_when_told_to(
    engine: str, make_database: Make, tmp_path: Path, blobs: str
) -> None:
    told = await export_database(
        odd_database(make_database, "sqlite", blobs), tmp_path / "export", blobs_url=blobs
    )
    target = make_database(engine)
    target_blobs = tmp_path / "target"
    stores = await open_stores(target, blobs_url=target_blobs.as_uri())
    await accepted(stores)
    header = ArtifactHeader(
        artifact_id="old", workspace="acme", bot="helper", conversation_key="talk",
        type="file", created_at=NOON,
    )  # fmt: skip
    await stores.artifacts.write(header, _chunks(b"old bytes"))
    await stores.close()
    rows = count_rows(target)
    with pytest.raises(TransferRefused, match="not empty"):
        await import_database(target, tmp_path / "export", blobs_url=target_blobs.as_uri())
    assert count_rows(target) == rows
    taken = await import_database(
        target, tmp_path / "export", blobs_url=target_blobs.as_uri(), replace=True
    )
    assert taken == told
    again = await export_database(target, tmp_path / "again", blobs_url=target_blobs.as_uri())
    assert again == told
    assert [path.read_bytes() for path in target_blobs.glob("??/*")] == [BLOB]


@pytest.mark.parametrize("engine", ENGINES)
async def test_database_of_a_running_host_is_left_alone(
    engine: str, make_database: Make, tmp_path: Path, blobs: str
) -> None:
    await export_database(
        odd_database(make_database, "sqlite", blobs), tmp_path / "export", blobs_url=blobs
    )
    target = make_database(engine)
    stores = await open_stores(target)
    await stores.hosts.register("host-1", "start-1", datetime.now(UTC) + timedelta(minutes=1))
    await stores.close()
    with pytest.raises(TransferRefused, match="host host-1 runs"):
        await import_database(target, tmp_path / "export", blobs_url=blobs, replace=True)


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "a line is missing": lambda data: data[: data.rindex(b"\n", 0, -1) + 1],
    "a line is cut": lambda data: data[:-5],
    "a value is another": lambda data: data.replace(b"start-1", b"start-2", 1),
    "a line is no JSON": lambda data: b"{" + data,
    "a value is of another type": lambda data: data.replace(b'["', b'[7,"', 1),
    "there is nothing": lambda data: data[:0],
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("damage", DAMAGES)
async def test_damaged_table_leaves_the_database_as_it_was(
    damage: str, engine: str, make_database: Make, tmp_path: Path, blobs: str
) -> None:
    source = await open_stores(make_database("sqlite"), blobs_url=blobs)
    for number in range(3):
        await accepted(source, f"run-{number}")
    await source.close()
    await export_database(_url(source_path(tmp_path)), tmp_path / "export", blobs_url=blobs)
    path = tmp_path / "export" / "tables" / "runs.jsonl"
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    target = make_database(engine)
    with pytest.raises(TransferDamaged, match=r"runs\.jsonl"):
        await import_database(target, tmp_path / "export", blobs_url=blobs)
    assert count_rows(target) == 0


async def test_damaged_or_missing_blob_and_manifest_are_told(
    make_database: Make, tmp_path: Path, blobs: str
) -> None:
    await export_database(
        odd_database(make_database, "sqlite", blobs), tmp_path / "export", blobs_url=blobs
    )
    target, elsewhere = make_database("sqlite"), (tmp_path / "elsewhere").as_uri()
    blob = next((tmp_path / "export" / "blobs").glob("??/*"))
    blob.write_bytes(BLOB[:-1] + b"?")
    with pytest.raises(TransferDamaged, match=blob.name):
        await import_database(target, tmp_path / "export", blobs_url=elsewhere)
    blob.unlink()
    with pytest.raises(TransferDamaged, match="missing"):
        await import_database(target, tmp_path / "export", blobs_url=elsewhere)
    manifest = tmp_path / "export" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"rows": 6', '"rows": 5', 1))
    with pytest.raises(TransferDamaged, match="was changed"):
        await import_database(target, tmp_path / "export", blobs_url=elsewhere)
    manifest.unlink()
    with pytest.raises(TransferRefused, match="run 'runmesh export' first"):
        await import_database(target, tmp_path / "export", blobs_url=elsewhere)
    assert count_rows(target) == 0


async def test_lost_blob_is_named_and_the_export_can_go_on(
    make_database: Make, tmp_path: Path, blobs: str
) -> None:
    url = odd_database(make_database, "sqlite", blobs)
    kept = tmp_path / "kept"
    shutil.move(tmp_path / "blobs", kept)
    with pytest.raises(BlobLost):
        await export_database(url, tmp_path / "export", blobs_url=blobs)
    assert not (tmp_path / "export" / "manifest.json").exists()
    shutil.move(kept, tmp_path / "blobs")
    told = await export_database(url, tmp_path / "export", blobs_url=blobs)
    assert told.blobs == 1
    with pytest.raises(TransferRefused, match="finished export"):
        await export_database(url, tmp_path / "export", blobs_url=blobs)


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("where", ["table runs", "table run_results", "check runs", "blobs"])
async def test_what_was_interrupted_is_started_again(
    where: str, engine: str, make_database: Make, tmp_path: Path, blobs: str
) -> None:
    def interrupt(what: str, done: int) -> None:
        if what == where:
            raise Interrupted

    url = odd_database(make_database, "sqlite", blobs)
    if not where.startswith("check"):
        with pytest.raises(Interrupted):
            await export_database(url, tmp_path / "export", blobs_url=blobs, progress=interrupt)
    told = await export_database(url, tmp_path / "export", blobs_url=blobs)
    target, elsewhere = make_database(engine), (tmp_path / "elsewhere").as_uri()
    with pytest.raises((Interrupted, StoreError)):
        await import_database(target, tmp_path / "export", blobs_url=elsewhere, progress=interrupt)
    assert count_rows(target) == 0
    assert await import_database(target, tmp_path / "export", blobs_url=elsewhere) == told


async def test_cancelled_import_ends_at_once_and_leaves_nothing(
    make_database: Make, tmp_path: Path, blobs: str
) -> None:
    url = odd_database(make_database, "sqlite", blobs)
    await export_database(url, tmp_path / "export", blobs_url=blobs)
    target = make_database("sqlite")
    loop, begun = asyncio.get_running_loop(), asyncio.Event()

    def tell(what: str, done: int) -> None:
        loop.call_soon_threadsafe(begun.set)

    task = asyncio.create_task(
        import_database(target, tmp_path / "export", blobs_url=blobs, progress=tell)
    )
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await import_database(target, tmp_path / "export", blobs_url=blobs)).blobs == 1


@pytest.mark.parametrize("engine", ENGINES)
async def test_export_sees_one_moment_beside_a_writer(
    engine: str, make_database: Make, tmp_path: Path, blobs: str
) -> None:
    url = make_database(engine)
    stores = await open_stores(url, blobs_url=blobs)
    done = asyncio.Event()

    async def write() -> int:
        for number in range(100_000):
            if done.is_set():
                return number
            await accepted(stores, f"run-{number}")
            item = replace(an_item(f"item-{number}"), run_id=f"run-{number}")
            await stores.ledger.record(RunFacts(run_id=f"run-{number}", items=(item,)))
        return 0

    writer = asyncio.create_task(write())
    await export_database(url, tmp_path / "export", blobs_url=blobs)
    done.set()
    assert await writer
    await stores.close()
    target = make_database("sqlite")
    await import_database(target, tmp_path / "export", blobs_url=blobs)
    with open_database(target, synchronous="FULL").engine.connect() as connection:
        run_ids = set(connection.execute(sa.text("SELECT run_id FROM runs")).scalars())
        of_events = set(connection.execute(sa.text("SELECT run_id FROM events")).scalars())
        of_items = set(connection.execute(sa.select(transcript_items.c.run_id)).scalars())
    assert run_ids == of_events
    assert of_items <= run_ids
    assert len(run_ids - of_items) <= 1


def test_blob_names_cannot_lead_out_of_the_folder() -> None:
    with pytest.raises(InvalidRecord, match="must be 64"):
        BlobName("../../etc/passwd")
