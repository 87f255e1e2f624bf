"""The commands that work on a database by themselves, beside a host and without one."""

import os
import shutil
import sqlite3
import stat
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.commands import CommandLine, running


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    """A data folder that a host was at work on, and has left."""
    with running(tmp_path_factory.mktemp("used") / "data") as command_line:
        assert command_line("chat", "héllo 你好").out == "héllo 你好\n"
    return command_line


@pytest.fixture(scope="module")
def exported(used: CommandLine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported") / "export"
    assert used("export", str(folder)).status == 0
    return folder


def count(data: Path, table: str) -> int:
    with closing(sqlite3.connect(data / "runmesh.db")) as connection:
        found: int = connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        return found


def levels(findings: list[dict[str, Any]], area: str) -> set[str]:
    return {finding["level"] for finding in findings if finding["area"] == area}


def test_migrate_says_from_what_to_what(alone: CommandLine) -> None:
    alone.data.mkdir()
    checked = alone("migrate", "--check")
    assert checked.status == 1
    assert "has no schema" in checked.out
    assert list(alone.data.iterdir()) == []
    migrated = alone("migrate")
    assert migrated.status == 0
    assert migrated.out.startswith("the database had no schema, and has revision 00")
    assert stat.S_IMODE((alone.data / "runmesh.db").stat().st_mode) == 0o600
    again = alone("migrate", "--check")
    assert again.status == 0
    assert "nothing to do" in again.out


def test_commands_stop_at_a_schema_of_another_version(alone: CommandLine) -> None:
    alone.data.mkdir()
    assert alone("migrate").status == 0
    with closing(sqlite3.connect(alone.data / "runmesh.db")) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    for words in (["migrate"], ["purge"], ["export", str(alone.data / "export")]):
        ran = alone(*words)
        assert ran.status == 1
        assert "schema revision 9999" in ran.error_line()
    with closing(sqlite3.connect(alone.data / "runmesh.db")) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '0001'")
    assert "run 'runmesh migrate'" in alone("purge").error_line()


def test_nothing_is_purged_where_everything_is_kept(used: CommandLine) -> None:
    ran = used("purge")
    assert ran.status == 0
    assert "keeps everything" in ran.out
    refused = used("purge", "--workspace", "nobody")
    assert "keeps everything" in refused.error_line()


def test_purge_beside_a_running_host_removes_what_is_old(alone: CommandLine) -> None:
    with running(alone.data) as host:
        host("chat", "old words", "--conversation", "talk")
        trial = host("purge", "--older-than", "1ms", "--dry-run", "--json").json()
        assert count(host.data, "runs") == 1
        told = host("purge", "--older-than", "1ms", "--json").json()
        (removed,) = told["workspaces"].values()
        (expected,) = trial["workspaces"].values()
        assert removed["runs"] == expected["runs"] == 1
        assert removed["items"] == expected["items"] == 2
        assert [count(host.data, table) for table in ("runs", "events", "transcript_items")] == [
            *(0, 0, 0)
        ]
        assert host("chat", "new words", "--conversation", "talk").out == "new words\n"
        assert len(host("runs", "list", "--json").json()) == 1
        assert "removed nothing" in host("purge", "--older-than", "1d").out


def test_retention_is_set_shown_and_held_to(alone: CommandLine) -> None:
    with running(alone.data) as host:
        assert "keeps everything" in host("retention", "show").err
        refused = host("retention", "set", "default", "--max-age", "1h")
        assert refused.status == 1
        assert "from 86400" in refused.error_line()
        told = host("retention", "set", "default", "--max-age", "90d", "--max-items", "1")
        assert "no older than 90d, and 1 items" in told.out
        assert "90d" in host("retention", "show").out
        shown = host("retention", "show", "--json").json()
        assert shown["default"] == {
            "max_age_seconds": 90 * 86_400,
            "max_items_per_conversation": 1,
        }
        for text in ("one", "two"):
            host("chat", text, "--conversation", "talk")
        assert host("purge").status == 0


def test_everything_moves_into_another_data_folder(
    used: CommandLine, exported: Path, alone: CommandLine, tmp_path: Path
) -> None:
    assert stat.S_IMODE(exported.stat().st_mode) == 0o700
    modes = {stat.S_IMODE(path.stat().st_mode) for path in exported.rglob("*") if path.is_file()}
    assert modes == {0o600}
    taken = alone("import", str(exported), "--json")
    assert (taken.status, taken.err) == (0, "")
    assert stat.S_IMODE((alone.data / "runmesh.db").stat().st_mode) == 0o600
    again = alone("export", str(tmp_path / "again"), "--json")
    assert again.json() == taken.json()
    assert "not empty" in alone("import", str(exported)).error_line()
    assert alone("import", str(exported), "--replace").status == 0
    for name in ("operator.key", "secret.key"):
        shutil.copy(used.data / name, alone.data)
    with running(alone.data) as host:
        assert len(host("runs", "list", "--json").json()) == 1
        refused = host("import", str(exported), "--replace")
        assert refused.error_line().startswith(f"a host runs on {alone.data}")
        assert host("export", str(tmp_path / "beside")).status == 0


def test_export_and_import_say_what_is_in_the_way(
    used: CommandLine, exported: Path, alone: CommandLine, tmp_path: Path
) -> None:
    assert "finished export" in used("export", str(exported)).error_line()
    full = tmp_path / "full"
    full.mkdir()
    (full / "file").write_text("x")
    assert "is not empty" in used("export", str(full)).error_line()
    assert "run 'runmesh export' first" in alone("import", str(tmp_path)).error_line()
    alone.data.mkdir(exist_ok=True)
    assert "nothing in the database" in alone("export", str(tmp_path / "new")).error_line()


def test_doctor_finds_nothing_wrong_beside_a_host_and_alone(
    running_host: CommandLine, used: CommandLine
) -> None:
    beside = running_host("doctor", "--json")
    assert [one for one in beside.json() if one["level"] == "problem"] == []
    assert beside.status == 0
    areas = {"data folder", "host", "database", "clocks", "secret key", "blobs", "plugins"}
    assert areas | {"models", "limits", "sockets"} == {one["area"] for one in beside.json()}
    alone = used("doctor", "--json", "--grpc", "127.0.0.1:0", "--http", "off")
    assert alone.status == 0
    assert levels(alone.json(), "ports") == {"ok"}
    lines = used("doctor", "--grpc", "127.0.0.1:0", "--http", "off").out.splitlines()
    assert [line for line in lines if not line.startswith(("ok ", "warning "))] == []


def test_doctor_says_what_is_wrong_and_what_to_do(
    running_host: CommandLine, alone: CommandLine
) -> None:
    alone.data.mkdir(mode=0o700)
    assert alone("migrate").status == 0
    (alone.data / "operator.key").write_text("rmk_")
    (alone.data / "operator.key").chmod(0o644)
    alone.data.chmod(0o755)
    (alone.data / "secret.key").touch(mode=0o600)
    plugin = alone.data / "plugins" / "broken"
    plugin.mkdir(parents=True)
    (plugin / "manifest.yaml").write_text("kind: Plugin\n")
    other = alone.data / "plugins" / "absent"
    other.mkdir()
    (other / "manifest.yaml").write_text(
        "apiVersion: runmesh/v1\nkind: Plugin\n"
        "metadata: {author: acme, name: absent, version: 1.0.0}\n"
        "run: {command: [no-such-program]}\ncomponents: [components/x.yaml]\n"
    )
    taken = running_host.host_file()["grpc"]
    ran = alone("doctor", "--json", "--grpc", taken, "--http", "off")
    assert ran.status == 1
    problems = [one for one in ran.json() if one["level"] == "problem"]
    assert all(one["advice"] for one in problems)
    told = "\n".join(f"{one['area']}: {one['told']}: {one['advice']}" for one in problems)
    for expected in (
        "data folder: operator.key is open to others",
        f"chmod 700 {alone.data}",
        "secret key: ",
        "plugins: acme/absent: its program no-such-program is not there",
        f"ports: {taken} cannot be listened on",
    ):
        assert expected in told
    assert str(plugin) in told


def test_doctor_finds_damage_and_lost_blobs(exported: Path, alone: CommandLine) -> None:
    assert alone("import", str(exported)).status == 0
    database = alone.data / "runmesh.db"
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        page = connection.execute("PRAGMA page_size").fetchone()[0]
        root = connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'runs'"
        ).fetchone()[0]
        sha, name = b"\0" * 32, f"{'00' * 32}.{'00' * 8}"
        connection.execute("INSERT INTO blobs VALUES (?, ?, 5, 0, NULL)", (name, sha))
        connection.execute(
            "INSERT INTO artifacts VALUES"
            " ('a', 'w', 'b', 'c', NULL, 't', 'm', 'n', 's', 0, NULL, ?)",
            (name,),
        )
        connection.commit()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    lost = alone("doctor", "--json", "--http", "off", "--grpc", "127.0.0.1:0").json()
    assert levels(lost, "blobs") == {"problem"}
    with database.open("r+b") as file:
        file.seek((root - 1) * page)
        file.write(b"\xff" * page)
    damaged = alone("doctor", "--json", "--http", "off", "--grpc", "127.0.0.1:0")
    assert damaged.status == 1
    assert "problem" in levels(damaged.json(), "database")


def test_killed_import_leaves_nothing_and_can_be_started_again(
    used: CommandLine, alone: CommandLine, tmp_path: Path
) -> None:
    folder = tmp_path / "export"
    assert used("export", str(folder)).status == 0
    table = folder / "tables" / "run_results.jsonl"
    kept = table.read_bytes()
    table.unlink()
    os.mkfifo(table)
    # It is in its transaction, at the last table, once the pipe there can be opened.
    with alone.started("import", str(folder)) as process, table.open("wb"):
        process.kill()
        process.wait(20)
    assert count(alone.data, "runs") == 0
    table.unlink()
    table.write_bytes(kept)
    assert alone("import", str(folder)).status == 0
    assert count(alone.data, "runs") == 1
