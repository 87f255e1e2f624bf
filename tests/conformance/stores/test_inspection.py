"""What is seen of a database and its blobs from outside, and of its schema."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from stores import open_stores
from stores.actions import ActionStatus
from stores.errors import StoreUnavailable
from stores.inspection import inspect_blobs, inspect_database
from stores.records import ArtifactHeader
from stores.schema import migrate, read_schema_state
from stores.secret_keys import new_secret_key, parse_secret_keys
from stores.secrets import SecretOwner
from tests.conformance.stores.samples import NOON, accepted
from tests.conformance.stores.test_actions import an_action, entry_of


async def _chunks(content: bytes) -> AsyncIterator[bytes]:
    yield content


async def test_empty_database_is_whole(database_url: str) -> None:
    report = inspect_database(database_url)
    assert report.engine.split()[0].lower() in database_url
    assert (report.faults, report.living_hosts, report.lost_hosts) == ((), (), ())
    assert report.newest_ahead_seconds == 0
    if database_url.startswith("sqlite"):
        assert (report.clock_ahead_seconds, report.wal_bytes) == (None, 0)
    else:
        assert report.wal_bytes is None
        assert report.clock_ahead_seconds is not None
        assert abs(report.clock_ahead_seconds) < 1


async def test_hosts_runs_from_the_future_and_keys_are_seen(database_url: str) -> None:
    keys = parse_secret_keys(new_secret_key(), source="a test")
    stores = await open_stores(database_url, secret_keys=keys)
    now = datetime.now(UTC)
    await stores.hosts.register("living", "start-1", now + timedelta(minutes=1))
    await stores.hosts.register("gone", "start-1", now - timedelta(minutes=1))
    await accepted(stores, "run-1", host_id="gone")
    await accepted(stores, "run-2", host_id="forgotten")
    await accepted(stores, "run-3", host_id="living", created_at=now + timedelta(hours=1))
    await stores.secrets.put(SecretOwner("model", "m"), "key", "secret")
    await stores.close()
    report = inspect_database(database_url)
    assert report.living_hosts == ("living",)
    assert report.lost_hosts == ("forgotten", "gone")
    assert 3_500 < report.newest_ahead_seconds <= 3_600
    assert report.secret_key_ids == (keys.newest.id,)


async def test_actions_that_wait_for_approval_are_counted(database_url: str) -> None:
    stores = await open_stores(database_url)
    await accepted(stores, "run-1")
    now = datetime.now(UTC)
    for number, status in enumerate(ActionStatus):
        asked = now - timedelta(hours=number)
        action = an_action(f"action-{number}", status=status, requested_at=asked)
        await stores.actions.put(action, entry=entry_of)
    await stores.close()
    report = inspect_database(database_url)
    assert report.awaiting_actions == 1
    hours = list(ActionStatus).index(ActionStatus.AWAITING_APPROVAL)
    assert abs(report.oldest_awaiting_seconds - hours * 3_600) < 60


async def test_lost_and_cut_blobs_are_named(database_url: str, tmp_path: Path) -> None:
    blobs_url = (tmp_path / "blobs").as_uri()
    stores = await open_stores(database_url, blobs_url=blobs_url)
    for name in ("whole", "lost", "cut"):
        header = ArtifactHeader(
            artifact_id=name, workspace="acme", bot="helper", conversation_key="talk",
            type="file", created_at=NOON,
        )  # fmt: skip
        await stores.artifacts.write(header, _chunks(name.encode()))
    await stores.close()
    report = await inspect_blobs(database_url, blobs_url=blobs_url)
    assert (report.artifacts, report.looked_at, report.lost, report.size_bytes) == (3, 3, (), 12)
    files = {path.read_bytes(): path for path in (tmp_path / "blobs").glob("??/*")}
    files[b"lost"].unlink()
    files[b"cut"].chmod(0o600)
    files[b"cut"].write_bytes(b"c")
    report = await inspect_blobs(database_url, blobs_url=blobs_url)
    assert set(report.lost) == {files[b"lost"].name, files[b"cut"].name}


async def test_schema_is_told_and_nothing_is_made_by_looking(tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    state = read_schema_state(f"sqlite:///{path}")
    assert (state.found, state.is_current) == (None, False)
    assert not path.exists()
    assert migrate(f"sqlite:///{path}") == state
    assert read_schema_state(f"sqlite:///{path}").is_current


async def test_schema_on_either_engine_is_the_newest(database_url: str) -> None:
    assert read_schema_state(database_url).is_current
    assert migrate(database_url).is_current


@pytest.mark.parametrize("look", [inspect_database, read_schema_state, migrate])
def test_database_that_cannot_be_reached_is_told(look: object, tmp_path: Path) -> None:
    broken = tmp_path / "broken.db"
    broken.write_bytes(b"this is no database at all, but long enough for one" * 100)
    for url in (f"sqlite:///{broken}", "postgresql+psycopg://nobody@127.0.0.1:1/none"):
        with pytest.raises(StoreUnavailable):
            look(url)  # type: ignore[operator]
