"""Runners whose language cuts characters in two: the host joins them, or says that it mended."""

import base64
from pathlib import Path
from typing import Any

import pytest
from runmesh.v1 import gateway_pb2

from stores import Stores
from tests.integration.host.calls import (
    END,
    Caller,
    collect,
    collect_until,
    delta,
    message,
    say,
    scripted,
)
from tests.integration.host.waiting import eventually

COMPLETED = gateway_pb2.RUN_STATUS_COMPLETED
FAILED = gateway_pb2.RUN_STATUS_FAILED
# The halves of 😀, each as UTF-8 would have it if it were a character.
HIGH, LOW = b"\xed\xa0\xbd", b"\xed\xb8\x80"
# What stands for them in a script, which is JSON and can hold neither.
MARKS = {"{H}": HIGH, "{L}": LOW}


def cut(*texts: str) -> dict[str, Any]:
    """A step of a script: a frame of deltas whose texts may have halves, `{H}` and `{L}`."""
    return raw([delta(text) for text in texts])


def raw(results: list[dict[str, Any]]) -> dict[str, Any]:
    """A step of a script: a frame of results whose texts may have halves."""
    pairs = [each for pair in MARKS.items() for each in (pair[0].encode(), pair[1])]
    return {"send": results, "replace": [base64.b64encode(each).decode() for each in pairs]}


@pytest.mark.parametrize(
    ("name", "steps", "text"),
    [
        ("two-frames", [cut("a{H}"), cut("{L}b")], "a😀b"),
        ("one-frame", [cut("a{H}", "{L}b")], "a😀b"),
        ("one-text", [cut("a{H}{L}b")], "a😀b"),
        ("lone", [cut("a{H}"), say("b")], "a\ufffdb"),
        ("last", [cut("a{H}")], "a\ufffd"),
        ("second-first", [cut("{L}a{H}"), cut("{L}")], "\ufffda😀"),
    ],
    ids=lambda value: value if isinstance(value, str) and value.isascii() else "",
)
async def test_pair_is_joined_and_a_lone_half_replaced(
    caller: Caller, stores: Stores, name: str, steps: list[dict[str, Any]], text: str
) -> None:
    where: dict[str, Any] = {"bot_id": "cut pairs", "conversation_id": name}
    answer = await caller.dispatch(scripted(*steps, END, **where), "scripted")
    answer.check_numbers()
    assert answer.ended.status == COMPLETED
    assert answer.shown == text
    assert answer.messages == [text]
    assert ("text_repaired" in answer.warnings) == ("\ufffd" in text or name == "one-text")
    assert (await caller.watch(answer.run_id)).messages == [text]
    # The conversation goes on, and has nothing in it that somebody could not read.
    again = await caller.dispatch(message("next 😀", **where), "default")
    assert again.text == "next 😀"
    page = await stores.transcript.page(answer.ended.conversation_key, newest_first=False)
    assert [each.text for each in page.items][-3:] == [text, "next 😀", "next 😀"]


async def test_half_that_waits_is_shown_with_the_next_result(
    caller: Caller, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    call = caller.open(
        scripted(say("a"), cut("b{H}"), {"await": str(go)}, cut("{L}c"), END), "scripted"
    )
    answer = await collect_until(call, lambda so_far: so_far.shown == "a")
    go.touch()
    answer = await collect(call, answer)
    assert answer.shown == "ab😀c"
    assert [each.sequence for each in answer.results[:3]] == [1, 2, 3]
    assert answer.warnings == []


async def test_what_waits_when_the_runner_is_gone_is_kept(caller: Caller) -> None:
    answer = await caller.dispatch(scripted(say("a"), cut("b{H}"), {"exit": 3}), "scripted")
    assert answer.ended.status == FAILED
    assert answer.failure == "runner.crashed"
    assert answer.messages == ["ab\ufffd"]

    async def is_back() -> bool:
        return (await caller.dispatch(scripted(say("on"), END), "scripted")).text == "on"

    await eventually(is_back)


async def test_reasoning_and_messages_side_by_side_are_joined_each_by_itself(
    caller: Caller,
) -> None:
    def piece(message_id: str, **texts: str) -> dict[str, Any]:
        return {"messageDelta": {"messageId": message_id, **texts}}

    answer = await caller.dispatch(
        scripted(
            raw([piece("m1", reasoningText="why{H}"), piece("m1", reasoningText="{L}?")]),
            raw([piece("m1", text="one{H}"), piece("m2", text="{L}two")]),
            END,
        ),
        "scripted",
    )
    completed = [
        each.message_completed.message
        for each in answer.results
        if each.HasField("message_completed")
    ]
    assert completed[0].reasoning_text == "why😀?"
    assert answer.messages == ["one\ufffd", "\ufffdtwo"]
