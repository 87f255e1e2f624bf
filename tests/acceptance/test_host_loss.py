"""A host that is killed in the middle of everything, and comes back."""

import asyncio
import sys
import time
from pathlib import Path

from runmesh.v1 import gateway_pb2

from stores import open_stores
from tests.integration.host.calls import (
    END,
    calling,
    collect_until,
    message,
    say,
    scripted,
)
from tests.integration.host.host_process import HostProcess
from tests.integration.host.plugins import (
    SCRIPTED,
    write_scripted_plugin,
    write_shell_plugin,
)
from tests.integration.host.processes import Process, descendants
from tests.integration.host.waiting import eventually

COMPLETED = gateway_pb2.RUN_STATUS_COMPLETED
FAILED = gateway_pb2.RUN_STATUS_FAILED
QUEUED = gateway_pb2.RUN_STATUS_QUEUED

_CONFIG = """\
agents:
- {id: scripted, runner_id: "plugin:acme/scripted/default"}
- {id: wrapped, runner_id: "plugin:acme/wrapped/default"}
limits: {active_runs: 2}
"""
# A shell that stays in front of its program, with a child and a grandchild that ignore being asked.
_WRAPPED = f"""
trap '' TERM
sh -c "trap '' TERM; sleep 1001 & sleep 1002; true" &
setsid sleep 1003 &
{sys.executable} {SCRIPTED}
true
"""


async def test_host_that_is_killed_leaves_nothing_running_and_loses_nothing(
    tmp_path: Path, plain_host: HostProcess
) -> None:
    write_scripted_plugin(tmp_path / "plugins")
    write_shell_plugin(tmp_path / "plugins", "acme/wrapped", _WRAPPED)
    more, note = tmp_path / "more", tmp_path / "note"
    others = descendants(plain_host.pid)
    with HostProcess(tmp_path / "data", plugins=tmp_path / "plugins", config=_CONFIG) as host:
        async with calling(host.addresses["grpc"], host.key) as caller:
            event = scripted(
                say("shown at first, "), {"await": str(more)}, say("shown last"), {"sleep": 3600},
                event_id="interrupted", conversation_id="c", bot_id="b",
            )  # fmt: skip
            call = caller.open(event, "scripted")
            answer = await collect_until(call, lambda so_far: so_far.shown == "shown at first, ")
            beside = caller.open(scripted(say("wrapped"), {"sleep": 3600}), "wrapped")
            beside_answer = await collect_until(beside, lambda so_far: bool(so_far.shown))
            waiting = await caller.submit(
                scripted(say("started once"), END, note=note, event_id="waiting"), "scripted"
            )
            assert (await caller.get(waiting.run_id)).status == QUEUED

            stores = await open_stores(host.database_url)
            # The text in progress is kept behind the stream's back: twice, so that the parts of it
            # must be put together.
            await eventually(lambda: _checkpointed(stores, answer.run_id, "shown at first, "))
            more.touch()
            answer = await collect_until(call, lambda so_far: "last" in so_far.shown, answer)
            await eventually(
                lambda: _checkpointed(stores, answer.run_id, "shown at first, shown last")
            )
            await eventually(lambda: _checkpointed(stores, beside_answer.run_id, "wrapped"))
            await stores.close()
            seen = answer.results[-1].sequence

            mine = descendants(host.pid)
            assert sum("sleep 100" in each.command for each in mine) >= 3
            host.kill()
            killed_at = time.monotonic()
            await eventually(lambda: not _alive(mine), seconds=15)
            assert time.monotonic() - killed_at < 5

        host.start()
        async with calling(host.addresses["grpc"], host.key) as caller:
            ended = await caller.watch(answer.run_id)
            assert ended.ended.status == FAILED
            assert ended.ended.failure.code == "host.restarted"
            assert ended.ended.failure.retryable
            assert ended.kinds == ["message_completed", "run_failed"]
            assert ended.messages == ["shown at first, shown last"]
            assert ended.results[0].message_completed.incomplete
            ended.check_numbers()
            # Whoever saw the run before the loss gets the rest, above every number it may know.
            assert ended.results[-1].sequence > seen
            rest = await caller.watch(answer.run_id, seen)
            assert rest.results == ended.results
            assert rest.ended.last_sequence == rest.results[-1].sequence
            other = await caller.watch(beside_answer.run_id)
            assert other.messages == ["wrapped"]
            assert other.failure == "host.restarted"
            # The same event again is answered with the run it had.
            again = await caller.dispatch(event, "scripted")
            assert again.accepted.duplicate
            assert again.ended.failure.code == "host.restarted"

            started = await caller.watch(waiting.run_id)
            assert started.ended.status == COMPLETED
            assert started.text == "started once"
            assert note.read_text().split() == ["called", "ended"]
            await asyncio.gather(
                *(caller.dispatch(message(f"as before {number}")) for number in range(5))
            )
        stores = await open_stores(host.database_url)
        page = await stores.transcript.page(ended.ended.conversation_key)
        assert [(each.role, each.text) for each in page.items][:1] == [
            ("assistant", "shown at first, shown last")
        ]
        assert page.items[0].incomplete
        stored = await stores.ledger.results(answer.run_id)
        assert [each.kind for each in stored].count("run_failed") == 1
        assert not await stores.ledger.checkpoints(answer.run_id)
        await stores.close()

        # Nobody else's processes were touched, and they still serve.
        assert _alive(others) == others
        async with calling(plain_host.addresses["grpc"], plain_host.key) as caller:
            assert (await caller.dispatch(message("untouched"))).text == "untouched"


def _alive(processes: frozenset[Process]) -> frozenset[Process]:
    return frozenset(each for each in processes if each.is_alive)


async def _checkpointed(stores: object, run_id: str, text: str) -> bool:
    pieces = await stores.ledger.checkpoints(run_id)  # type: ignore[attr-defined]
    return "".join(piece.text for piece in pieces) == text
