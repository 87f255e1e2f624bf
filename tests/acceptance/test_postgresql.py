"""A host on PostgreSQL: what a user does, and what becomes of it when either side goes away."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import grpc.aio
import psycopg
import pytest
from runmesh.v1 import gateway_pb2

from tests.acceptance.commands import CommandLine
from tests.integration.host.calls import Caller, calling, collect_until, message
from tests.integration.host.host_process import HostProcess
from tests.integration.host.waiting import eventually
from tests.postgresql import PostgresqlServer, running_postgresql

COMPLETED = gateway_pb2.RUN_STATUS_COMPLETED
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE

AGENTS = """\
agents:
- id: default
  runner_id: plugin:runmesh/echo/default
- id: slow
  runner_id: plugin:runmesh/echo/default
  config: {repeat: 400, size: 4, interval_seconds: 0.05}
"""

CALLERS = 8
AWAY_SECONDS = 2.0
BACK_SECONDS = 5.0


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresqlServer]:
    with running_postgresql() as server:
        yield server


@pytest.fixture
def host(
    server: PostgresqlServer, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[HostProcess]:
    # Each test has a database of its own: a host makes its operator's key in an empty one.
    url = server.new_database(f"of_{request.node.name}"[:63])
    host = HostProcess(tmp_path / "data", config=AGENTS, arguments=["--database", url])
    yield host
    host.close()


async def test_host_on_postgresql_chats_and_comes_back_from_being_killed(host: HostProcess) -> None:
    command_line = CommandLine(host.data)
    with host:
        asked = command_line.process("chat", "你好 👋")
        assert (asked.status, asked.out) == (0, "你好 👋\n"), asked
        async with calling(host.addresses["grpc"], host.key) as caller:
            call = caller.open(message("x" * 10, event_id="cut off"), "slow")
            answer = await collect_until(call, lambda so_far: len(so_far.shown) > 8)
            host.kill()
        host.start()
        async with calling(host.addresses["grpc"], host.key) as caller:
            ended = await caller.watch(answer.run_id)
            assert ended.failure == "host.restarted"
            assert ended.results[-1].sequence > answer.results[-1].sequence
            again = await caller.dispatch(message("x" * 10, event_id="cut off"), "slow")
            assert again.accepted.duplicate
            assert again.run_id == answer.run_id
        listed = command_line.process("runs", "list", "--json")
        assert listed.status == 0, listed.err
        statuses = {run["run_id"]: run["status"] for run in listed.json()}
        assert statuses.pop(answer.run_id) == "RUN_STATUS_FAILED"
        assert list(statuses.values()) == ["RUN_STATUS_COMPLETED"]
    # Nothing was written beside the database that the host was given.
    assert not (host.data / "runmesh.db").exists()


class Load:
    """Callers that dispatch one event after another, and note what they are told.

    Attributes:
        completed: The runs whose good end was told.
        refusals: The codes of calls that failed.
        answered_at: When a run was last completed.
    """

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self.completed: list[str] = []
        self.failures: list[str] = []
        self.refusals: list[grpc.StatusCode] = []
        self.answered_at = 0.0

    async def __call__(self, number: int) -> None:
        count = 0
        while True:
            count += 1
            try:
                answer = await self._caller.dispatch(
                    message("hello", event_id=f"{number}-{count}", conversation_id=str(number))
                )
            except grpc.aio.AioRpcError as error:
                self.refusals.append(error.code())
                await asyncio.sleep(0.05)
                continue
            if answer.ended.status == COMPLETED:
                self.completed.append(answer.run_id)
                self.answered_at = time.monotonic()
            else:
                self.failures.append(answer.failure)


async def refusal_of(caller: Caller) -> grpc.StatusCode | None:
    """What is told to who only reads, or None."""
    try:
        await caller.list()
    except grpc.aio.AioRpcError as error:
        return error.code()
    return None


async def test_server_that_goes_away_under_load_costs_nothing_that_was_acknowledged(
    host: HostProcess, server: PostgresqlServer
) -> None:
    with host:
        pid = host.pid
        async with calling(host.addresses["grpc"], host.key) as caller:
            load = Load(caller)
            tasks = [asyncio.create_task(load(number)) for number in range(CALLERS)]
            await eventually(lambda: len(load.completed) > 3 * CALLERS)
            await asyncio.to_thread(server.crash)
            await eventually(lambda: len(load.refusals) > CALLERS)
            assert await refusal_of(caller) is UNAVAILABLE
            assert host.get("/readyz")[0] == 503
            assert host.get("/healthz")[0] == 200
            await asyncio.sleep(AWAY_SECONDS)
            before = len(load.completed)
            await asyncio.to_thread(server.start)
            back_at = time.monotonic()
            await eventually(lambda: len(load.completed) > before + CALLERS)
            assert load.answered_at - back_at < BACK_SECONDS
            await eventually(lambda: host.get("/readyz")[0] == 200)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert set(load.refusals) == {UNAVAILABLE}
            assert set(load.failures) <= {"host.unavailable"}
            for run_id in load.completed:
                assert (await caller.get(run_id)).status == COMPLETED
        assert host.pid == pid
        assert not host.has_ended
        await eventually(lambda: not _idle_in_transaction(server))


def _idle_in_transaction(server: PostgresqlServer) -> int:
    with psycopg.connect(server.driver_url) as connection:
        row = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'"
        ).fetchone()
    assert row is not None
    return int(row[0])
