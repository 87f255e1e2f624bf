"""SIGTERM: what is under way may end, what comes late is refused, and the host leaves cleanly."""

import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from runmesh.v1 import gateway_pb2

from stores import open_stores
from stores.records import RunStatus
from tests.integration.host.calls import (
    END,
    Caller,
    calling,
    collect,
    collect_until,
    message,
    say,
    scripted,
    whole,
)
from tests.integration.host.host_process import HostProcess
from tests.integration.host.plugins import write_scripted_plugin
from tests.integration.host.processes import Process, descendants
from tests.integration.host.refusals import refusal_of, refused
from tests.integration.host.waiting import eventually

COMPLETED = gateway_pb2.RUN_STATUS_COMPLETED
CANCELLED = gateway_pb2.RUN_STATUS_CANCELLED

_CONFIG = """\
agents:
- {id: scripted, runner_id: "plugin:acme/scripted/default"}
- {id: polite, runner_id: "plugin:acme/scripted/polite"}
"""


def a_host(folder: Path, limits: str = "") -> HostProcess:
    write_scripted_plugin(folder / "plugins")
    return HostProcess(folder / "data", plugins=folder / "plugins", config=_CONFIG + limits)


@asynccontextmanager
async def stopping(host: HostProcess) -> AsyncIterator[Caller]:
    """A caller of a host, which must be told to stop in between; checks how it left."""
    started: frozenset[Process] = descendants(host.pid)
    assert started
    async with calling(host.addresses["grpc"], host.key) as caller:
        yield caller
    await eventually(lambda: host.has_ended, seconds=15)
    assert host.wait() == 0
    assert not [each for each in started if each.is_alive]
    # A clean stop leaves nothing that only a running host needs.
    assert not (host.data / "host.json").exists()
    assert not list(host.data.glob("*.db-wal"))
    assert not Path(host.addresses["socket"].removeprefix("unix:")).parent.exists()
    assert "Traceback" not in host.log()


async def told_to_stop(host: HostProcess, caller: Caller) -> None:
    """Sends SIGTERM, and returns once the host says that it takes no more."""
    host.signal(signal.SIGTERM)
    checks: Any = health_pb2_grpc.HealthStub(caller.channel)

    async def not_serving() -> bool:
        answer = await checks.Check(health_pb2.HealthCheckRequest())
        return bool(answer.status == health_pb2.HealthCheckResponse.NOT_SERVING)

    await eventually(not_serving)


async def test_live_stream_finishes_cleanup_is_kept_and_late_calls_are_refused(
    tmp_path: Path,
) -> None:
    go = tmp_path / "go"
    with a_host(tmp_path, "limits: {active_runs: 2}") as host:
        async with stopping(host) as caller:
            live = caller.open(
                scripted(say("live "), {"await": str(go)}, say("to the end"), END), "scripted"
            )
            live_answer = await collect_until(live, lambda so_far: so_far.shown == "live ")
            watcher = caller.watching(live_answer.run_id)
            watched = await collect_until(watcher, lambda so_far: so_far.shown == "live ")
            cleaned = {"runFailed": {"code": "cancelled", "message": "cleaned up"}}
            aborted = caller.open(
                scripted(
                    say("to be aborted"),
                    {"sleep": 3600},
                    on_interrupt=[{"sleep": 1}, {"send": [whole("cleaned up"), cleaned]}],
                    conversation_id="aborted",
                ),
                "polite",
                on_disconnect=gateway_pb2.ON_DISCONNECT_CANCEL,
            )
            aborted_answer = await collect_until(aborted, lambda so_far: bool(so_far.results))
            waiting = caller.open(message("waits", event_id="waits"), "default")
            waiting_answer = await collect_until(waiting, lambda so_far: bool(so_far.items))
            aborted.cancel()
            await told_to_stop(host, caller)

            for late in (
                caller.dispatch(message()),
                caller.submit(message()),
                caller.dispatch(message("waits", event_id="waits"), "default"),
            ):
                refusal = await refused(late)
                assert refusal.code == refusal.reason == "UNAVAILABLE"
                assert refusal.retry_after_seconds is not None
            # Who waits is not left hanging.
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await collect(waiting, waiting_answer)
            assert refusal_of(caught.value).code == "UNAVAILABLE"
            # Runs can be read until the end.
            assert (await caller.get(live_answer.run_id)).run_id == live_answer.run_id
            go.touch()
            for answer in (await collect(live, live_answer), await collect(watcher, watched)):
                assert answer.shown == "live to the end"
                assert answer.ended.status == COMPLETED
        stores = await open_stores(host.database_url)
        run = await stores.ledger.get(aborted_answer.run_id)
        assert run is not None
        assert run.status is RunStatus.CANCELLED
        page = await stores.transcript.page(run.conversation_key)
        assert (page.items[0].role, page.items[0].text) == ("assistant", "cleaned up")
        run = await stores.ledger.get(waiting_answer.run_id)
        assert run is not None
        assert not run.status.is_terminal
        await stores.close()

        host.start()
        async with calling(host.addresses["grpc"], host.key) as caller:
            answer = await caller.watch(waiting_answer.run_id)
            assert answer.ended.status == COMPLETED
            assert answer.text == "waits"
            again = await caller.dispatch(message("waits", event_id="waits"), "default")
            assert again.run_id == answer.run_id


async def test_second_signal_cancels_what_still_runs_at_once(tmp_path: Path) -> None:
    with a_host(tmp_path) as host:
        async with stopping(host) as caller:
            calls = [
                caller.open(scripted(say("under way"), {"sleep": 3600}), agent_id)
                for agent_id in ("scripted", "polite")
            ]
            answers = [
                await collect_until(call, lambda so_far: bool(so_far.shown)) for call in calls
            ]
            await told_to_stop(host, caller)
            assert (await caller.get(answers[0].run_id)).status == gateway_pb2.RUN_STATUS_RUNNING
            hurried_at = time.monotonic()
            host.signal(signal.SIGTERM)
            for call, answer in zip(calls, answers, strict=True):
                await collect(call, answer)
                assert answer.ended.status == CANCELLED
                assert answer.messages == ["under way"]
                assert "shutting down" in answer.ended.failure.message
                assert answer.ended.failure.retryable
        # The grace would be half a minute.
        assert time.monotonic() - hurried_at < 12


async def test_run_that_outlives_the_grace_is_cancelled(tmp_path: Path) -> None:
    with a_host(tmp_path, "limits: {shutdown_grace_seconds: 0.3}") as host:
        async with stopping(host) as caller:
            call = caller.open(scripted(say("too long"), {"sleep": 3600}), "scripted")
            answer = await collect_until(call, lambda so_far: bool(so_far.shown))
            host.signal(signal.SIGTERM)
            answer = await collect(call, answer)
            assert answer.ended.status == CANCELLED
            assert answer.messages == ["too long"]
