"""Tests of `host_service.runs.progress`: text in progress is neither lost nor shown twice."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runmesh.v1 import result_pb2, types_pb2

from host_service.runs.progress import OpenMessage, Progress
from tests.unit.runs.samples import a_delta, a_result

NO_LIMIT = 1 << 30


def noted(*deltas: result_pb2.MessageDelta) -> Progress:
    """Return the progress of a run that delivered these deltas under 1, 2, 3."""
    progress = Progress()
    for number, delta in enumerate(deltas, start=1):
        progress.note([a_result(number, message_delta=delta)])
    return progress


def a_part(name: str) -> types_pb2.ContentPart:
    return types_pb2.ContentPart(url=types_pb2.UrlContent(url=name))


def shown(parts: Iterable[types_pb2.ContentPart]) -> str:
    """Write texts as they are and other parts in brackets."""
    return "".join([part.text or f"[{part.url.url}]" for part in parts])


def whole(message: OpenMessage | None) -> tuple[str, str]:
    """Return what a message says, and its reasoning."""
    assert message is not None
    completed = message.completed(incomplete=False).message
    return shown(completed.parts), completed.reasoning_text


def tail(progress: Progress, after: int, limit_bytes: int = NO_LIMIT) -> list[result_pb2.RunResult]:
    """Return all tails in the order in which they are delivered."""
    tails = [
        result
        for message in progress.messages()
        for result in message.tail("run-1", after, limit_bytes=limit_bytes)
    ]
    return sorted(tails, key=lambda result: result.sequence)


def test_deltas_of_one_id_are_one_message_and_those_without_belong_to_the_newest() -> None:
    progress = noted(
        a_delta("Hel", id="a"), a_delta("B", id="b"), a_delta("!"), a_delta("lo", id="a")
    )
    assert [(each.message_id, whole(each)[0]) for each in progress.messages()] == [
        ("a", "Hello"),
        ("b", "B!"),
    ]


def test_deltas_without_any_id_are_one_message_of_the_hosts_making() -> None:
    (message,) = noted(a_delta("Hel"), a_delta("lo")).messages()
    assert message.message_id
    assert whole(message) == ("Hello", "")
    # Nobody but the host knows the id: deltas go out as they came.
    assert message.completed(incomplete=False).message.message_id == message.message_id


def test_reasoning_is_kept_apart_and_is_no_content() -> None:
    progress = noted(a_delta("", reasoning="hm"), a_delta("yes", reasoning="m"))
    (message,) = progress.messages()
    assert whole(message) == ("yes", "hmm")
    (thinking,) = noted(a_delta("", reasoning="hm")).messages()
    assert not thinking.has_content


def test_texts_and_parts_stay_in_their_order() -> None:
    (message,) = noted(
        a_delta("see "),
        a_delta("this: "),
        result_pb2.MessageDelta(parts=[a_part("1"), a_part("2")]),
        a_delta(" and "),
        result_pb2.MessageDelta(text="that: ", parts=[a_part("3")]),
    ).messages()
    parts = message.completed(incomplete=True).message.parts
    assert [shown([part]) for part in parts] == ["see this: ", "[1]", "[2]", " and that: ", "[3]"]
    assert message.completed(incomplete=True).incomplete


@pytest.mark.parametrize(
    ("completed_id", "closed"),
    [("a", "A"), ("b", "B"), ("", "B"), ("new", None)],
)
def test_completed_message_takes_the_place_of_its_deltas(
    completed_id: str, closed: str | None
) -> None:
    progress = noted(a_delta("A", id="a"), a_delta("B", id="b"))
    message = progress.close(completed_id)
    assert (whole(message)[0] if message else None) == closed
    assert len(list(progress.messages())) == (2 if closed is None else 1)


def test_deltas_without_an_id_are_those_of_the_message_that_is_completed_next() -> None:
    message = noted(a_delta("Hello")).close("the id it had all along")
    assert whole(message) == ("Hello", "")


def test_after_a_message_is_completed_deltas_without_an_id_begin_another() -> None:
    progress = noted(a_delta("one"))
    progress.close("")
    progress.note([a_result(3, message_delta=a_delta("two"))])
    assert [whole(each)[0] for each in progress.close_all()] == ["two"]


def test_completing_another_message_does_not_break_the_one_in_progress_in_two() -> None:
    progress = noted(a_delta("A", id="a"), a_delta("B", id="b"))
    progress.close("a")
    progress.note([a_result(4, message_delta=a_delta("!"))])
    assert [(each.message_id, whole(each)[0]) for each in progress.close_all()] == [("b", "B!")]


def test_message_that_was_shown_nothing_of_is_not_completed() -> None:
    progress = noted(a_delta("", id="a"), a_delta("", id="b"), a_delta("x"))
    assert [(each.message_id, whole(each)[0]) for each in progress.close_all()] == [("b", "x")]
    assert not list(progress.messages())


def test_size_counts_everything_that_is_held_and_nothing_that_was_let_go() -> None:
    progress = noted(*[a_delta("x" * 1000, id="a") for _ in range(1024)])
    assert 1_000_000 <= progress.size < 1_100_000
    progress.note([a_result(1, message_delta=a_delta("", reasoning="y" * 500_000, id="b"))])
    list(progress.messages())
    assert progress.size > 1_500_000
    progress.close("a")
    assert progress.size < 600_000
    progress.close_all()
    assert progress.size == 0


def test_bytes_of_parts_and_the_number_of_messages_count_as_well() -> None:
    inline = types_pb2.InlineContent(data=b"x" * 5000, mime_type="image/png")
    part = types_pb2.ContentPart(inline=inline)
    progress = noted(result_pb2.MessageDelta(parts=[part]))
    list(progress.messages())
    assert progress.size > 5000
    progress = noted(*[a_delta("x", id=str(number)) for number in range(2000)])
    list(progress.messages())
    assert progress.size > 1_000_000


def test_deltas_are_folded_as_they_gather_so_that_notes_stay_few() -> None:
    progress = Progress()
    for number in range(1, 5001):
        progress.note([a_result(number, message_delta=a_delta("x"))])
        assert len(progress._noted) < 1024


def test_tail_is_one_delta_where_nothing_came_in_between() -> None:
    progress = noted(*[a_delta(text, id="a") for text in "abcdef"])
    (only,) = tail(progress, 2)
    assert (only.run_id, only.first_sequence, only.sequence) == ("run-1", 3, 6)
    assert (only.message_delta.message_id, only.message_delta.text) == ("a", "cdef")
    assert tail(progress, 6) == []


def test_tail_is_cut_where_something_else_came_in_between() -> None:
    progress = Progress()
    for number, text in ((1, "a"), (2, "b"), (5, "c"), (6, "d")):
        progress.note([a_result(number, message_delta=a_delta(text))])
    assert [(each.first_sequence, each.sequence) for each in tail(progress, 0)] == [(1, 2), (5, 6)]


def test_empty_deltas_do_not_cut_a_tail() -> None:
    (only,) = tail(noted(a_delta("a"), a_delta(""), a_delta("b"), a_delta("")), 0)
    assert (only.first_sequence, only.sequence, only.message_delta.text) == (1, 4, "ab")


def test_tail_has_the_parts_that_came_after_the_number() -> None:
    progress = noted(
        a_delta("a"), result_pb2.MessageDelta(parts=[a_part("1")]), a_delta("b"), a_delta("c")
    )
    first, second = tail(progress, 1)
    assert shown(first.message_delta.parts) == "[1]"
    assert second.message_delta.text == "bc"
    assert [shown(each.message_delta.parts) for each in tail(progress, 2)] == [""]


def test_tail_goes_out_in_pieces_of_a_size_and_none_is_left_out_for_its_own() -> None:
    progress = noted(*[a_delta("x" * 100) for _ in range(10)])
    tails = tail(progress, 0, limit_bytes=350)
    assert all(each.message_delta.ByteSize() <= 350 for each in tails)
    assert sum(len(each.message_delta.text) for each in tails) == 1000
    assert len(tails) < 10
    assert len(tail(progress, 0, limit_bytes=1)) == 10


def test_pieces_of_checkpoints_are_taken_once() -> None:
    progress = noted(a_delta("Hel", reasoning="h"))
    (message,) = progress.messages()
    assert message.take_unsaved() == ("Hel", "h")
    assert message.take_unsaved() is None
    progress.note([a_result(2, message_delta=a_delta("lo"))])
    (message,) = progress.messages()
    assert message.take_unsaved() == ("lo", "")
    assert message.last_sequence == 2


@dataclass
class _Reader:
    """What somebody makes of the deltas that they are shown."""

    texts: dict[str, str] = field(default_factory=dict)
    current: str = ""
    seen: int = 0

    def read(self, results: Iterable[result_pb2.RunResult]) -> None:
        for result in results:
            assert self.seen < (result.first_sequence or result.sequence) <= result.sequence
            self.seen = result.sequence
            if not result.HasField("message_delta"):
                continue
            delta = result.message_delta
            self.current = delta.message_id or self.current
            self.texts[self.current] = (
                self.texts.get(self.current, "") + delta.text + shown(delta.parts)
            )


def _spoken(reader: _Reader) -> dict[str, str]:
    return {name: text for name, text in reader.texts.items() if text}


_deltas = st.builds(
    lambda text, reasoning, parts, name: result_pb2.MessageDelta(
        message_id=name, text=text, reasoning_text=reasoning, parts=[a_part(each) for each in parts]
    ),
    st.text("abc你", max_size=3),
    st.sampled_from(["", "", "hm"]),
    st.sampled_from([[], [], [], ["1"], ["2", "3"]]),
    st.sampled_from(["", "", "a", "b"]),
)
# None is a result that is no delta, such as a tool call.
_runs = st.lists(st.none() | _deltas, min_size=1, max_size=25)


def _delivered(steps: Sequence[result_pb2.MessageDelta | None]) -> list[result_pb2.RunResult]:
    return [
        a_result(number, message_delta=step)
        if step is not None
        else a_result(number, tool_call_started=result_pb2.ToolCallStarted(call_id="c"))
        for number, step in enumerate(steps, start=1)
    ]


@given(_runs, st.data())
@settings(max_examples=150, deadline=None)
def test_joining_at_any_number_and_again_misses_and_doubles_nothing(
    steps: list[result_pb2.MessageDelta | None], data: st.DataObject
) -> None:
    results = _delivered(steps)
    progress = Progress()
    progress.note([each for each in results if each.HasField("message_delta")])
    others = [each for each in results if not each.HasField("message_delta")]
    first = data.draw(st.integers(0, len(results)), label="seen live")
    limit = data.draw(st.sampled_from([1, 20, NO_LIMIT]), label="bytes of a delta")
    reader = _Reader()
    reader.read(results[:first])
    for _ in range(2):
        # What a watcher is sent: tails and the other results, by their numbers. Its connection
        # breaks somewhere in it, and it watches again from the last number it has seen.
        rest = tail(progress, reader.seen, limit) + [
            each for each in others if each.sequence > reader.seen
        ]
        rest.sort(key=lambda result: result.sequence)
        reader.read(rest[: data.draw(st.integers(0, len(rest)), label="until it breaks")])
    rest = tail(progress, reader.seen, limit) + [
        each for each in others if each.sequence > reader.seen
    ]
    reader.read(sorted(rest, key=lambda result: result.sequence))
    live = _Reader()
    live.read(results)
    assert _spoken(reader) == _spoken(live)
    assert sorted(whole(each)[0] for each in progress.close_all() if each.has_content) == sorted(
        text for text in live.texts.values() if text
    )


@given(st.lists(st.tuples(st.text("ab你", max_size=3), st.text("hm", max_size=2), st.booleans())))
@settings(max_examples=60, deadline=None)
def test_pieces_of_checkpoints_make_up_the_text(steps: list[tuple[str, str, bool]]) -> None:
    progress, pieces = Progress(), list[tuple[str, str]]()
    for number, (text, reasoning, is_checkpoint) in enumerate(steps, start=1):
        progress.note([a_result(number, message_delta=a_delta(text, reasoning=reasoning))])
        if is_checkpoint or number == len(steps):
            for message in progress.messages():
                piece = message.take_unsaved()
                if piece is not None:
                    pieces.append(piece)
    assert "".join(text for text, _ in pieces) == "".join(text for text, _, _ in steps)
    assert "".join(reasoning for _, reasoning in pieces) == "".join(each for _, each, _ in steps)
