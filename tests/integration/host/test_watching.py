"""WatchRun: from any number on, under way or ended, nothing is missing and nothing doubled."""

import asyncio
from functools import partial
from pathlib import Path

import pytest
from runmesh.v1 import gateway_pb2, result_pb2

from tests.integration.host.calls import (
    END,
    Answer,
    Caller,
    collect,
    collect_until,
    message,
    say,
    scripted,
    whole,
)
from tests.integration.host.refusals import refused

COMPLETED = gateway_pb2.RUN_STATUS_COMPLETED
RUNNING = gateway_pb2.RUN_STATUS_RUNNING
PIECES = [f"piece {number}, " for number in range(8)]


async def test_run_that_has_ended_is_replayed_from_any_number(caller: Caller) -> None:
    ran = await caller.dispatch(
        scripted(
            say("first "),
            {"send": [whole("first one")]},
            {"send": [{"toolCallStarted": {"callId": "1", "toolName": "look"}}]},
            say("second "),
            {"send": [whole("second one")]},
            END,
        ),
        "scripted",
    )
    assert ran.ended.status == COMPLETED
    durable = [each for each in ran.results if not each.HasField("message_delta")]
    for after in range(ran.ended.last_sequence + 2):
        replay = await caller.watch(ran.run_id, after)
        assert replay.items[0] == "accepted"
        assert replay.items[-1] == "ended"
        assert replay.ended == ran.ended
        replay.check_numbers(after)
        # Without the deltas that a message covers, the results are those of the first time.
        assert replay.results == [each for each in durable if each.sequence > after]


async def test_run_under_way_is_joined_at_any_number_in_the_middle_of_a_message(
    caller: Caller, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    steps = [say(piece) for piece in PIECES]
    call = caller.open(
        scripted(*steps, {"await": str(go)}, say("and on"), END), agent_id="scripted"
    )
    live = await collect_until(call, lambda so_far: so_far.shown == "".join(PIECES))
    watching = [caller.watching(live.run_id, after) for after in range(len(PIECES) + 1)]
    joined = []
    for after, watcher in enumerate(watching):
        joined.append(
            await collect_until(watcher, partial(_reaches, after=after, number=len(PIECES)))
        )
    for after, answer in enumerate(joined):
        assert answer.accepted.status == RUNNING
        # What it lacks of the message in progress comes as one delta.
        assert [each.message_delta.text for each in answer.results] == (
            ["".join(PIECES[after:])] if after < len(PIECES) else []
        )
        if answer.results:
            assert answer.results[0].first_sequence == after + 1
            assert answer.results[0].sequence == len(PIECES)
    go.touch()
    live = await collect(call, live)
    for after, (watcher, answer) in enumerate(zip(watching, joined, strict=True)):
        await collect(watcher, answer)
        answer.check_numbers(after)
        assert answer.shown == "".join(PIECES[after:]) + "and on"
        assert answer.messages == live.messages
        assert answer.results[-1] == live.results[-1]
        assert answer.ended == live.ended


async def test_reader_that_comes_back_gets_the_rest_once(caller: Caller, tmp_path: Path) -> None:
    go = [tmp_path / f"go-{number}" for number in range(len(PIECES))]
    steps = [
        step
        for piece, file in zip(PIECES, go, strict=True)
        for step in (say(piece), {"await": str(file)})
    ]
    call = caller.open(scripted(*steps, END), agent_id="scripted")
    seen = await collect_until(call, lambda so_far: bool(so_far.results))
    call.cancel()
    text, after = seen.shown, seen.results[-1].sequence
    for number, file in enumerate(go[:-1]):
        file.touch()
        watcher = caller.watching(seen.run_id, after)
        part = await collect_until(watcher, lambda so_far: bool(so_far.results))
        watcher.cancel()
        part.check_numbers(after)
        text, after = text + part.shown, part.results[-1].sequence
        assert text == "".join(PIECES[: number + 2])
    go[-1].touch()
    rest = await caller.watch(seen.run_id, after)
    rest.check_numbers(after)
    assert rest.shown == ""
    assert rest.messages == [text]
    assert rest.kinds == ["message_completed", "run_completed"]


async def test_messages_in_progress_side_by_side_can_be_joined_after_any_number(
    caller: Caller, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    call = caller.open(
        scripted(
            {"send": [{"messageDelta": {"messageId": "m1", "text": "all "}}]},
            {"send": [whole("all of it", "m1")]},
            {"send": [{"messageDelta": {"messageId": "m2", "text": "then "}}]},
            {"send": [{"messageDelta": {"messageId": "m3", "text": "beside "}}]},
            {"send": [{"messageDelta": {"messageId": "m2", "text": "more "}}]},
            {"send": [{"messageDelta": {"messageId": "m2", "text": "again"}}]},
            {"await": str(go)},
            END,
        ),
        agent_id="scripted",
    )
    live = await collect_until(call, lambda so_far: so_far.shown.endswith("again"))
    for after in range(7):
        watcher = caller.watching(live.run_id, after)
        joined = await collect_until(watcher, partial(_reaches, after=after, number=6))
        watcher.cancel()
        joined.check_numbers(after)
        assert joined.messages == (["all of it"] if after < 2 else [])
        assert [(each.message_id, each.text) for each in _deltas(joined)] == [
            (message_id, "".join(text for number, text in pieces if number > after))
            for message_id, pieces in (
                ("m2", [(3, "then ")]),
                ("m3", [(4, "beside ")]),
                ("m2", [(5, "more "), (6, "again")]),
            )
            if pieces[-1][0] > after
        ]
    go.touch()
    live = await collect(call, live)
    assert live.messages == ["all of it", "then more again", "beside "]
    assert (await caller.watch(live.run_id)).messages == live.messages


async def test_text_around_a_tool_call_stays_in_its_order(caller: Caller, tmp_path: Path) -> None:
    go = tmp_path / "go"
    part = {"url": {"url": "https://example.org/picture.png"}}
    call = caller.open(
        scripted(
            say("I look it "),
            say("up. "),
            {"send": [{"toolCallStarted": {"callId": "1", "toolName": "look"}}]},
            say("There "),
            {"send": [{"messageDelta": {"text": "it is.", "parts": [part]}}]},
            {"await": str(go)},
            END,
        ),
        agent_id="scripted",
    )
    live = await collect_until(call, lambda so_far: so_far.shown.endswith("is."))
    for after in range(6):
        watcher = caller.watching(live.run_id, after)
        joined = await collect_until(watcher, partial(_reaches, after=after, number=5))
        watcher.cancel()
        joined.check_numbers(after)
        before, behind = (["I look it ", "up. "][after:], ["There ", "it is."][max(after - 3, 0) :])
        expected = [("message_delta", "".join(before))] if before else []
        expected += [("tool_call_started", "")] if after < 3 else []
        expected += [("message_delta", "".join(behind))] if behind else []
        assert [
            (each.WhichOneof("payload"), each.message_delta.text) for each in joined.results
        ] == expected
        assert sum(len(each.parts) for each in _deltas(joined)) == (1 if behind else 0)
    go.touch()
    assert (await collect(call, live)).messages == ["I look it up. There it is."]


def _deltas(answer: Answer) -> list[result_pb2.MessageDelta]:
    return [each.message_delta for each in answer.results if each.HasField("message_delta")]


def _reaches(answer: Answer, after: int, number: int) -> bool:
    """Whether an answer has begun, and has all that there is after one number up to another."""
    if not answer.items:
        return False
    return after >= number or (bool(answer.results) and answer.results[-1].sequence == number)


async def test_every_watcher_gets_everything(caller: Caller, tmp_path: Path) -> None:
    go = tmp_path / "go"
    run = await caller.submit(
        scripted({"await": str(go)}, *(say(piece) for piece in PIECES), END), "scripted"
    )
    calls = [caller.watching(run.run_id) for _ in range(6)]
    joined = [await collect_until(each, lambda so_far: bool(so_far.items)) for each in calls]
    go.touch()
    answers = await asyncio.gather(*map(collect, calls, joined))
    for answer in answers:
        answer.check_numbers()
        assert answer.shown == "".join(PIECES)
        assert answer.ended == answers[0].ended


async def test_watcher_that_leaves_disturbs_nobody(caller: Caller, tmp_path: Path) -> None:
    go = tmp_path / "go"
    call = caller.open(
        scripted(say("before "), {"await": str(go)}, say("after"), END), agent_id="scripted"
    )
    live = await collect_until(call, lambda so_far: so_far.shown == "before ")
    for _ in range(5):
        watcher = caller.watching(live.run_id)
        await collect_until(watcher, lambda so_far: so_far.shown == "before ")
        watcher.cancel()
    go.touch()
    assert (await collect(call, live)).shown == "before after"


async def test_run_that_nobody_may_know_of_is_not_found(caller: Caller) -> None:
    for call in (
        caller.watch("no-such-run"),
        caller.get("no-such-run"),
        caller.cancel("no-such-run"),
    ):
        refusal = await refused(call)
        assert refusal.code == refusal.reason == "NOT_FOUND"
        assert refusal.facts["resource"] == "no-such-run"


@pytest.mark.parametrize("run_id", ["", "x" * 256, "nul\0", "x" * 255 + "é"])
async def test_id_that_can_be_none_is_refused(caller: Caller, run_id: str) -> None:
    for call in (caller.watch(run_id), caller.get(run_id), caller.cancel(run_id)):
        refusal = await refused(call)
        assert refusal.code == refusal.reason == "INVALID_ARGUMENT"
        assert list(refusal.fields) == ["run_id"]


async def test_number_below_zero_is_refused(caller: Caller) -> None:
    ran = await caller.dispatch(message())
    refusal = await refused(caller.watch(ran.run_id, -1))
    assert refusal.code == refusal.reason == "INVALID_ARGUMENT"
    assert list(refusal.fields) == ["after_sequence"]
