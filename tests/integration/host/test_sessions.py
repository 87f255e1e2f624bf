"""Sessions on a real host: order, affinity, limits, and what comes while a session is busy."""

import asyncio
import os
import signal
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from runmesh.v1 import event_pb2, gateway_pb2

from stores import Stores, open_stores
from tests.integration.host.attached import AttachedRunner, attach_folders
from tests.integration.host.calls import (
    Answer,
    Caller,
    agent,
    calling,
    collect,
    collect_until,
    message,
)
from tests.integration.host.host_process import HostProcess
from tests.integration.host.plugins import write_desk_plugin
from tests.integration.host.refusals import refused
from tests.integration.host.waiting import eventually

COMPLETED = gateway_pb2.RUN_STATUS_COMPLETED
CANCELLED = gateway_pb2.RUN_STATUS_CANCELLED
QUEUED = gateway_pb2.RUN_STATUS_QUEUED
RUNNING = gateway_pb2.RUN_STATUS_RUNNING

_AGENTS = """\
agents:
- {id: stateful, runner_id: "plugin:acme/desk/stateful"}
- {id: steered, runner_id: "plugin:acme/desk/steered"}
- {id: plain, runner_id: "plugin:acme/desk/plain"}
- {id: narrow, runner_id: "plugin:acme/narrow/plain"}
limits: {interrupt_grace_seconds: 2.0}
"""


@dataclass(frozen=True, slots=True)
class Step:
    """A line of the runners' note."""

    word: str
    pid: int
    event_id: str
    room: str


@dataclass(frozen=True, slots=True)
class Note:
    """What the runners wrote down."""

    path: Path

    def steps(self, room: str) -> list[Step]:
        """What they did for one conversation."""
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        steps = [Step(word, int(pid), *rest) for word, pid, *rest in map(str.split, lines)]
        return [step for step in steps if step.room == room]

    def begun(self, room: str) -> list[str]:
        """The events whose runs began, in order."""
        return [step.event_id for step in self.steps(room) if step.word == "begin"]

    def most_at_once(self, room: str) -> int:
        """How many runs were under way at once, at most."""
        under_way = most = 0
        for step in self.steps(room):
            under_way += 1 if step.word == "begin" else -1
            most = max(most, under_way)
        return most


# What holds for sessions holds however their runners are reached.
@pytest.fixture(scope="module", params=["dialled", "attached"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp(request.param)


@pytest.fixture(scope="module")
def desk_host(place: Path) -> Iterator[HostProcess]:
    note, runners = place / "note", list[AttachedRunner]()
    folders = [
        write_desk_plugin(place / "desks", note),
        write_desk_plugin(place / "desks", note, name="narrow", max_runs=2),
    ]
    is_attached = place.name.startswith("attached")
    own = place / "no plugins" if is_attached else place / "desks"
    own.mkdir(exist_ok=True)
    host = HostProcess(place / "data", plugins=own, config=_AGENTS)
    try:
        host.start()
        if is_attached:
            runners += attach_folders(host, *folders)
        yield host
    finally:
        host.close()
        for runner in runners:
            runner.close()


@pytest.fixture
async def caller(desk_host: HostProcess) -> AsyncIterator[Caller]:
    async with calling(desk_host.addresses["grpc"], desk_host.key) as caller:
        yield caller


@pytest.fixture
def note(place: Path) -> Note:
    return Note(place / "note")


def said(text: str, event_id: str, room: str, **fields: object) -> event_pb2.EventEnvelope:
    return message(text, event_id=f"{room}-{event_id}", conversation_id=room, **fields)


async def statuses(caller: Caller, *run_ids: str) -> list[gateway_pb2.RunStatus.ValueType]:
    return [(await caller.get(run_id)).status for run_id in run_ids]


async def running(caller: Caller, run_id: str) -> None:
    async def runs() -> bool:
        return await statuses(caller, run_id) == [RUNNING]

    await eventually(runs)


async def test_runs_of_a_session_go_in_order_and_those_behind_are_queued(
    caller: Caller, note: Note, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    runs = [
        await caller.submit(said(f"hold:{go} {n}", str(n), "order"), "stateful") for n in range(5)
    ]
    ids = [run.run_id for run in runs]
    await running(caller, ids[0])
    assert await statuses(caller, *ids[1:]) == [QUEUED] * 4
    go.touch()
    answers = [await caller.watch(run_id) for run_id in ids]
    assert [answer.text for answer in answers] == [f"{n} " for n in range(5)]
    assert note.begun("order") == [f"order-{n}" for n in range(5)]
    assert note.most_at_once("order") == 1
    for answer in answers[1:]:
        assert answer.ended.HasField("queued_at")
        assert answer.ended.queued_at.ToNanoseconds() <= answer.ended.started_at.ToNanoseconds()


async def test_fifty_conversations_at_once_go_beside_each_other(
    caller: Caller, note: Note, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    rooms = [f"fifty{number}" for number in range(50)]
    first = [await caller.submit(said(f"hold:{go} a", "0", room), "stateful") for room in rooms]
    rest = [
        await caller.submit(said(f"{n}", str(n), room), "stateful")
        for n in range(1, 4)
        for room in rooms
    ]

    async def all_run() -> bool:
        return set(await statuses(caller, *(run.run_id for run in first))) == {RUNNING}

    await eventually(all_run)
    go.touch()
    for run in (*first, *rest):
        assert (await caller.watch(run.run_id)).ended.status == COMPLETED
    for room in rooms:
        assert note.begun(room) == [f"{room}-{n}" for n in range(4)]
        assert note.most_at_once(room) == 1


async def test_crowd_in_one_session_starves_nobody(caller: Caller, tmp_path: Path) -> None:
    go = tmp_path / "go"
    # More than the host's places.
    crowd = await asyncio.gather(
        *(
            caller.submit(said(f"hold:{go} x", str(number), "crowd"), "stateful")
            for number in range(300)
        )
    )
    other = await asyncio.wait_for(caller.dispatch(message("hello"), "plain"), 10)
    assert other.ended.status == COMPLETED
    assert not other.ended.HasField("queued_at")
    cancelled = await asyncio.gather(*(caller.cancel(run.run_id) for run in crowd))
    assert {run.status for run in cancelled} == {CANCELLED}


async def test_session_moves_when_its_process_is_gone(
    make_host: Callable[..., HostProcess], tmp_path: Path
) -> None:
    note = Note(tmp_path / "note")
    write_desk_plugin(tmp_path / "plugins", note.path)
    host = make_host(plugins=tmp_path / "plugins", config=_AGENTS).start()
    async with calling(host.addresses["grpc"], host.key) as caller:
        await caller.dispatch(said("a", "0", "home"), "stateful")
        (before,) = {step.pid for step in note.steps("home")}
        os.kill(before, signal.SIGKILL)
        answer = await caller.dispatch(said("b", "1", "home"), "stateful")
        if answer.failure:
            # It was called before the loss was noticed.
            assert answer.failure in {"runner.crashed", "runner.unavailable"}
            answer = await caller.dispatch(said("c", "2", "home"), "stateful")
        assert answer.ended.status == COMPLETED
        assert note.steps("home")[-1].pid != before


async def test_run_waits_for_a_slot_of_its_instance(
    caller: Caller, note: Note, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    runs = [
        await caller.submit(said(f"hold:{go} {n}", str(n), "slots"), "narrow") for n in range(6)
    ]
    ids = [run.run_id for run in runs]
    await running(caller, ids[1])
    assert await statuses(caller, *ids) == [RUNNING] * 2 + [QUEUED] * 4
    # One that is cancelled frees its slot, whatever its process still does.
    await caller.cancel(ids[0])
    await running(caller, ids[2])
    go.touch()
    for run_id in ids[1:]:
        assert (await caller.watch(run_id)).ended.status == COMPLETED
    assert note.most_at_once("slots") <= 3


async def test_message_is_refused_while_its_session_is_busy(caller: Caller, tmp_path: Path) -> None:
    go = tmp_path / "go"
    first = await caller.submit(said(f"hold:{go} a", "0", "reject"), "plain")
    event = said("b", "1", "reject")
    refusal = await refused(caller.dispatch(event, "plain", follow_up=gateway_pb2.FOLLOW_UP_REJECT))
    assert (refusal.code, refusal.reason) == ("ABORTED", "SESSION_BUSY")
    assert refusal.facts["run_id"] == first.run_id
    assert refusal.retry_after_seconds is not None
    go.touch()
    await caller.watch(first.run_id)
    again = await caller.dispatch(event, "plain", follow_up=gateway_pb2.FOLLOW_UP_REJECT)
    assert (again.ended.status, again.accepted.duplicate) == (COMPLETED, False)


async def test_message_interrupts_what_is_under_way(caller: Caller, note: Note) -> None:
    call = caller.open(said("begun hang", "0", "interrupt"), "stateful")
    first = await collect_until(call, lambda so_far: so_far.shown == "begun ")
    second = await caller.dispatch(
        said("instead", "1", "interrupt"), "stateful", follow_up=gateway_pb2.FOLLOW_UP_INTERRUPT
    )
    first = await collect(call, first)
    assert (first.ended.status, first.failure) == (CANCELLED, "cancelled")
    assert first.messages == ["begun "]
    assert (second.ended.status, second.text) == (COMPLETED, "instead ")
    assert note.most_at_once("interrupt") == 1
    ended, started = first.ended.ended_at, second.ended.started_at
    assert ended.ToNanoseconds() <= started.ToNanoseconds()


async def handed_over(caller: Caller, room: str, *texts: str) -> list[tuple[object, Answer]]:
    """Dispatches messages to a busy session; returns calls that were answered with its run."""
    calls = []
    for number, text in enumerate(texts):
        call = caller.open(
            said(text, f"s{number}", room), "steered", follow_up=gateway_pb2.FOLLOW_UP_STEER
        )
        calls.append((call, await collect_until(call, lambda so_far: bool(so_far.items))))
    return calls


async def test_messages_are_taken_up_by_the_run_under_way(
    caller: Caller, note: Note, desk_host: HostProcess
) -> None:
    call = caller.open(said("first steer:2 last", "0", "steer"), "steered")
    first = await collect_until(call, lambda so_far: so_far.shown == "first ")
    others = await handed_over(caller, "steer", "second", "third 你")
    first = await collect(call, first)
    assert first.text == "first [second] [third 你] last "
    for other_call, other in others:
        answer = await collect(other_call, other)
        assert answer.run_id == answer.ended.run_id == first.run_id
        assert not answer.accepted.duplicate
        assert answer.results[-1].HasField("run_completed")
    assert note.begun("steer") == ["steer-0"]
    runs = (await caller.list(conversation_key=first.ended.conversation_key)).runs
    taken = [run for run in runs if run.steered_into]
    assert {run.event_id for run in taken} == {"steer-s0", "steer-s1"}
    for run in taken:
        assert (run.status, run.steered_into) == (COMPLETED, first.run_id)
        watched = await caller.watch(run.run_id)
        assert [each.WhichOneof("payload") for each in watched.results] == ["run_completed"]
    # A redelivery is answered as the event was.
    again = await caller.dispatch(said("second", "s0", "steer"), "steered")
    assert (again.run_id, again.accepted.duplicate) == (first.run_id, True)
    stores = await open_stores(desk_host.database_url)
    page = await stores.transcript.page(first.ended.conversation_key, newest_first=False)
    await stores.close()
    assert [(item.role, item.text) for item in page.items] == [
        ("user", "first steer:2 last"),
        ("user", "second"),
        ("user", "third 你"),
        ("assistant", "first [second] [third 你] last "),
    ]


async def test_what_the_run_did_not_take_up_runs_once_in_order(caller: Caller, note: Note) -> None:
    call = caller.open(said("first peek:2", "0", "left"), "steered")
    first = await collect_until(call, lambda so_far: so_far.shown == "first ")
    others = await handed_over(caller, "left", "second", "third")
    first = await collect(call, first)
    assert first.text == "first [second] [third] "
    for other_call, other in others:
        assert (await collect(other_call, other)).run_id == first.run_id

    async def all_done() -> bool:
        runs = (await caller.list(conversation_key=first.ended.conversation_key)).runs
        return len(runs) == 3 and all(run.status == COMPLETED for run in runs)

    await eventually(all_done)
    assert note.begun("left") == ["left-0", "left-s0", "left-s1"]
    again = await caller.dispatch(said("second", "s0", "left"), "steered")
    assert again.accepted.duplicate
    assert not again.accepted.steered_into
    assert again.text == "second "


async def test_crash_of_the_process_leaves_what_it_had_looked_at_to_the_next(
    caller: Caller, note: Note, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    call = caller.open(said(f"x peek:1 hold:{go} die", "0", "crash"), "steered")
    first = await collect_until(call, lambda so_far: so_far.shown == "x ")
    ((other_call, other),) = await handed_over(caller, "crash", "second")
    first = await collect_until(call, lambda so_far: so_far.shown == "x [second] ", first)
    go.touch()
    first = await collect(call, first)
    assert first.failure in {"runner.crashed", "runner.unavailable"}
    assert (await collect(other_call, other)).ended.run_id == first.run_id

    async def ran() -> bool:
        return note.begun("crash") == ["crash-0", "crash-s0"]

    await eventually(ran)
    again = await caller.dispatch(said("second", "s0", "crash"), "steered")
    assert again.text == "second "


async def test_caller_that_leaves_gives_up_its_message_and_not_the_run(caller: Caller) -> None:
    call = caller.open(said("first steer:1 last", "0", "leaves"), "steered")
    first = await collect_until(call, lambda so_far: so_far.shown == "first ")
    # Nobody pulls yet what comes before `steer`: the caller leaves while its message waits.
    stuck = caller.open(said("begun hang", "0", "stuck"), "steered")
    stuck_run = await collect_until(stuck, lambda so_far: so_far.shown == "begun ")
    leaving = caller.open(
        said("never mind", "1", "stuck"),
        "steered",
        follow_up=gateway_pb2.FOLLOW_UP_STEER,
        on_disconnect=gateway_pb2.ON_DISCONNECT_CANCEL,
    )
    await collect_until(leaving, lambda so_far: bool(so_far.items))
    leaving.cancel()

    async def given_up() -> bool:
        key = stuck_run.accepted.conversation_key
        runs = (await caller.list(conversation_key=key)).runs
        return {run.event_id: run.status for run in runs} == {
            "stuck-0": RUNNING,
            "stuck-1": CANCELLED,
        }

    await eventually(given_up)
    await caller.cancel(stuck_run.run_id)
    await handed_over(caller, "leaves", "second")
    assert (await collect(call, first)).text == "first [second] last "


async def test_agent_that_asks_of_its_runner_what_it_cannot_is_refused_when_saved(
    caller: Caller,
) -> None:
    cases = {
        ("plain", gateway_pb2.FOLLOW_UP_STEER): "steering",
        ("stateful", gateway_pb2.FOLLOW_UP_PARALLEL): "stateful_session",
    }
    for (runner, follow_up), word in cases.items():
        refusal = await refused(
            caller.apply(agent("odd", runner_id=f"plugin:acme/desk/{runner}", follow_up=follow_up))
        )
        assert refusal.reason == "INVALID_ARGUMENT"
        ((field, rule),) = refusal.fields.items()
        assert field.endswith("follow_up")
        assert word in rule
    await caller.apply(
        agent("even", runner_id="plugin:acme/desk/steered", follow_up=gateway_pb2.FOLLOW_UP_STEER)
    )


EVENT_TYPES = (
    "message.recalled",
    "group.member_joined",
    "friend.request_received",
    "schedule.triggered",
    "api.invoked",
    "acme.door_opened",
)


@pytest.mark.parametrize("type", EVENT_TYPES)
@pytest.mark.parametrize("name", ["stateful", "plain"])
async def test_event_without_text_is_a_run_and_no_message(
    caller: Caller, desk_host: HostProcess, note: Note, type: str, name: str
) -> None:
    room = f"{name}-{type}"
    event = message(
        None,
        type=type,
        event_id=room,
        conversation_id=room,
        subject=event_pb2.Subject(type="membership", id="m", data_json='{"n": 1}'),
        data_json='{"id": 9223372036854775807}',
    )
    answer = await caller.dispatch(event, name)
    assert answer.ended.status == COMPLETED
    assert note.begun(room) == [room]
    assert answer.kinds == ["run_completed"]
    stores: Stores = await open_stores(desk_host.database_url)
    page = await stores.transcript.page(answer.ended.conversation_key)
    logged = await stores.events.get_for_run(answer.run_id)
    await stores.close()
    assert page.items == ()
    assert logged is not None
    assert (logged.type, logged.input_summary) == (type, "")


async def test_event_that_is_no_message_waits_for_a_stateful_session_whatever_the_policy(
    caller: Caller, note: Note
) -> None:
    await caller.apply(
        agent(
            "eager",
            runner_id="plugin:acme/desk/stateful",
            follow_up=gateway_pb2.FOLLOW_UP_INTERRUPT,
        )
    )
    call = caller.open(said("begun hang", "0", "eager"), "eager")
    first = await collect_until(call, lambda so_far: so_far.shown == "begun ")
    recall = await caller.submit(
        message(None, type="message.recalled", event_id="eager-1", conversation_id="eager"), "eager"
    )
    assert await statuses(caller, first.run_id, recall.run_id) == [RUNNING, QUEUED]
    last = await caller.dispatch(said("now", "2", "eager"), "eager")
    assert last.ended.status == COMPLETED
    assert (await caller.watch(recall.run_id)).ended.status == COMPLETED
    assert note.begun("eager") == ["eager-0", "eager-1", "eager-2"]
    assert (await collect(call, first)).ended.status == CANCELLED


async def test_waiting_runs_of_a_killed_host_keep_their_order_and_nothing_is_lost(
    make_host: Callable[..., HostProcess], tmp_path: Path
) -> None:
    note, go = Note(tmp_path / "note"), tmp_path / "go"
    write_desk_plugin(tmp_path / "plugins", note.path)
    host = make_host(plugins=tmp_path / "plugins", config=_AGENTS).start()
    async with calling(host.addresses["grpc"], host.key) as caller:
        first = await caller.submit(said(f"hold:{go} a", "0", "killed"), "stateful")
        await running(caller, first.run_id)
        waiting = [
            await caller.submit(said(str(n), str(n), "killed"), "stateful") for n in range(1, 6)
        ]
        busy = await caller.submit(said(f"hold:{go} b", "0", "handed"), "steered")
        await running(caller, busy.run_id)
        await handed_over(caller, "handed", "c", "d")
        handed = {
            run.event_id: run.run_id
            for run in (await caller.list(conversation_key=busy.conversation_key)).runs
        }
    host.kill()
    go.touch()
    host.start()
    async with calling(host.addresses["grpc"], host.key) as caller:
        for run in (first, busy):
            assert (await caller.watch(run.run_id)).failure == "host.restarted"
        for run_id in (*(run.run_id for run in waiting), handed["handed-s0"], handed["handed-s1"]):
            ended = (await caller.watch(run_id)).ended
            assert (ended.status, ended.steered_into) == (COMPLETED, "")
    assert note.begun("killed")[1:] == [f"killed-{n}" for n in range(1, 6)]
    assert sorted(note.begun("handed")) == ["handed-0", "handed-s0", "handed-s1"]


def test_note_counts_what_is_under_way(tmp_path: Path) -> None:
    note = Note(tmp_path / "note")
    note.path.write_text("begin 1 a r\nbegin 1 b r\nend 1 a r\nbegin 1 x other\n")
    counts: defaultdict[str, int] = defaultdict(int)
    for step in note.steps("r"):
        counts[step.word] += 1
    assert (note.most_at_once("r"), dict(counts)) == (2, {"begin": 2, "end": 1})
