"""Tests of `host_service.runs.checker`: what a runner may send, and its numbers on the way out."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runmesh.v1 import result_pb2, run_pb2, types_pb2

from host_service.limits import KIB, MIB, Limits
from host_service.registry.frames import Frame, FrameReader
from host_service.runs.checker import ResultChecker
from host_service.validation import Validator
from tests.unit.runs.samples import a_delta, a_frame, a_message, a_result

END = result_pb2.RunCompleted(finish_reason="stop")


@lru_cache
def _validator(limits: Limits) -> Validator:
    return Validator(limits.as_mapping())


@dataclass
class Run:
    """A run as `ActiveRun` reads it: each frame on the fast way where that takes it."""

    limits: Limits = field(default_factory=Limits)
    fast: bool = True
    delivered: list[result_pb2.RunResult] = field(default_factory=list)
    runner_sequences: list[int] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    fault: str = ""
    terminal: str = ""

    def __post_init__(self) -> None:
        self.checker = ResultChecker(
            run_id="run-1",
            limits=self.limits,
            validator=_validator(self.limits),
            warn=lambda code, _: self.warnings.append(code),
        )

    def reads(self, *frames: Frame) -> "Run":
        """Read frames up to the first fault."""
        for frame in frames:
            if not self.fault:
                self._read(frame)
        return self

    def reads_results(self, *results: result_pb2.RunResult) -> "Run":
        """Read results, one a frame."""
        return self.reads(*[a_frame([each]) for each in results])

    def _read(self, frame: Frame) -> None:
        if self.fast and frame.response is not None:
            sent = [result.sequence for result in frame.response.results]
            if self.checker.number_plain_deltas(frame):
                self.delivered += frame.response.results
                self.runner_sequences += sent
                return
        checked = self.checker.check(frame)
        for each in checked.numbered:
            if each.kind in {"run_completed", "run_failed"}:
                self.terminal = each.kind
                continue
            self.delivered.append(each.result)
            self.runner_sequences.append(each.runner_sequence)
        if checked.fault is not None:
            self.fault = str(checked.fault)

    @property
    def numbers(self) -> list[int]:
        return [each.sequence for each in self.delivered]

    @property
    def texts(self) -> list[str]:
        return [each.message_delta.text for each in self.delivered]

    def outcome(self) -> tuple[Any, ...]:
        """Return all that anybody can tell of it."""
        encoded = [each.SerializeToString(deterministic=True) for each in self.delivered]
        return encoded, self.runner_sequences, self.warnings, self.fault, self.terminal


def deltas(*sequences: int, text: str = "") -> list[result_pb2.RunResult]:
    return [a_result(each, message_delta=a_delta(text or f"t{each}")) for each in sequences]


WAYS = pytest.mark.parametrize("fast", [True, False])


@WAYS
def test_results_in_order_go_on_under_the_hosts_numbers(*, fast: bool) -> None:
    run = Run(fast=fast).reads(a_frame(deltas(1, 2)), a_frame(deltas(3)))
    assert run.numbers == [1, 2, 3]
    assert [each.first_sequence for each in run.delivered] == [1, 2, 3]
    assert run.runner_sequences == [1, 2, 3]
    assert run.warnings == []


@WAYS
def test_host_numbers_on_from_what_it_delivered_and_the_runner_from_what_it_sent(
    *, fast: bool
) -> None:
    unknown = a_result(2)
    run = Run(fast=fast).reads_results(*deltas(1), unknown, *deltas(3, 4))
    assert (run.numbers, run.runner_sequences) == ([1, 2, 3], [1, 3, 4])
    assert run.texts == ["t1", "t3", "t4"]
    run.checker.number(result := a_result(0))
    assert (result.first_sequence, result.sequence) == (4, 4)


@WAYS
def test_first_sequence_is_the_hosts_whatever_the_runner_wrote_there(*, fast: bool) -> None:
    result = a_result(1, message_delta=a_delta("x"))
    result.first_sequence = 77
    run = Run(fast=fast).reads_results(result)
    assert run.delivered[0].first_sequence == 1


@WAYS
@pytest.mark.parametrize(
    ("sent", "delivered", "warnings"),
    [
        ((1, 1, 2), ["t1", "t2"], ["sequence_repeated"]),
        ((1, 2, 1, 3), ["t1", "t2", "t3"], ["sequence_repeated"]),
        ((1, 3, 4), ["t1", "t3", "t4"], ["sequence_gap"]),
        ((2, 3), ["t2", "t3"], ["sequence_gap"]),
        ((1, 3, 2, 4), ["t1", "t3", "t2", "t4"], ["sequence_gap", "sequence_step_back"]),
        (
            (1, 3, 2, 2, 3),
            ["t1", "t3", "t2"],
            ["sequence_gap", "sequence_step_back", "sequence_repeated", "sequence_repeated"],
        ),
        ((2**62, 2**62 + 1), [f"t{2**62}", f"t{2**62 + 1}"], ["sequence_gap"]),
        ((2**63 - 1,), [f"t{2**63 - 1}"], ["sequence_gap"]),
    ],
)
def test_repeated_results_are_dropped_and_gaps_and_steps_back_are_warned_of(
    sent: Sequence[int], delivered: Sequence[str], warnings: Sequence[str], *, fast: bool
) -> None:
    run = Run(fast=fast).reads_results(*deltas(*sent))
    assert (run.texts, run.warnings) == (delivered, warnings)
    assert run.numbers == list(range(1, len(delivered) + 1))


def test_gap_of_any_width_costs_no_memory() -> None:
    run = Run().reads_results(*deltas(*range(1, 10**9, 10**6)))
    assert len(run.checker._missing) <= 4096
    assert len(run.delivered) == 1000


@WAYS
@pytest.mark.parametrize("sequence", [0, -1, -(2**63)])
def test_number_below_one_ends_the_run(sequence: int, *, fast: bool) -> None:
    run = Run(fast=fast).reads_results(*deltas(sequence))
    assert str(sequence) in run.fault


@WAYS
@pytest.mark.parametrize("run_id", ["run-2", "", "r" * 300])
def test_result_of_another_run_ends_this_one(run_id: str, *, fast: bool) -> None:
    stray = result_pb2.RunResult(run_id=run_id, sequence=2, message_delta=a_delta("x"))
    run = Run(fast=fast).reads_results(*deltas(1), stray)
    assert run.texts == ["t1"]
    assert "run-1" in run.fault
    assert len(run.fault) < 200


def test_bytes_that_are_no_response_end_the_run() -> None:
    run = Run().reads(FrameReader().read(b"\xff\xff\xff"))
    assert "3 bytes" in run.fault


@WAYS
def test_what_came_before_a_fault_in_the_same_frame_goes_on(*, fast: bool) -> None:
    stray = result_pb2.RunResult(run_id="run-2", sequence=3, message_delta=a_delta("x"))
    run = Run(fast=fast).reads(a_frame([*deltas(1, 2), stray, *deltas(4)]))
    assert run.texts == ["t1", "t2"]
    assert run.fault


def _of_a_later_version(sequence: int) -> result_pb2.RunResult:
    # Field 99, length-delimited: a payload that nobody here knows.
    known = a_result(sequence).SerializeToString()
    return result_pb2.RunResult.FromString(known + b"\x9a\x06\x01x")


def test_unknown_result_is_ignored_with_a_warning() -> None:
    run = Run().reads_results(*deltas(1), _of_a_later_version(2), *deltas(3))
    assert (run.texts, run.warnings, run.fault) == (["t1", "t3"], ["unknown_result"], "")


def test_unknown_result_that_must_be_understood_ends_the_run() -> None:
    result = _of_a_later_version(1)
    result.must_understand = True
    run = Run().reads_results(result)
    assert "must be understood" in run.fault


@WAYS
def test_known_result_that_must_be_understood_is_an_ordinary_one(*, fast: bool) -> None:
    (result,) = deltas(1)
    result.must_understand = True
    assert Run(fast=fast).reads_results(result).texts == ["t1"]


@WAYS
@pytest.mark.parametrize("ending", ["run_completed", "run_failed"])
def test_what_follows_the_terminal_result_is_dropped_with_a_warning(
    ending: str, *, fast: bool
) -> None:
    end = {"run_completed": END, "run_failed": result_pb2.RunFailed(code="x", message="y")}[ending]
    last: list[Any] = [a_result(2, **{ending: end}), *deltas(3), a_result(4, run_completed=END)]
    run = Run(fast=fast).reads(a_frame([*deltas(1), *last]), a_frame(deltas(5)))
    stray = result_pb2.RunResult(run_id="run-2", sequence=-1, message_delta=a_delta("x"))
    run.reads(a_frame([stray]), FrameReader().read(b"\xff\xff\xff"))
    assert (run.texts, run.terminal, run.fault) == (["t1"], ending, "")
    assert run.warnings == ["after_terminal"] * 5


def test_terminal_result_gets_its_number_last_since_the_host_may_have_more_to_say() -> None:
    run = Run()
    checked = run.checker.check(a_frame([*deltas(1), a_result(2, run_completed=END)]))
    assert [each.kind for each in checked.numbered] == ["message_delta", "run_completed"]
    assert run.checker.delivered == 1


@WAYS
@pytest.mark.parametrize("over", [0, 1])
def test_result_over_its_limit_ends_the_run_with_size_and_limit(over: int, *, fast: bool) -> None:
    (result,) = deltas(1, text="x" * MIB)
    result.message_delta.text = "x" * (2 * MIB + over - result.ByteSize())
    assert result.ByteSize() == MIB + over
    run = Run(fast=fast).reads_results(result)
    if over:
        assert str(MIB + 1) in run.fault
        assert str(MIB) in run.fault.replace(str(MIB + 1), "")
        assert "result 1" in run.fault
    else:
        assert len(run.delivered) == 1


@WAYS
def test_frame_may_be_larger_than_a_result(*, fast: bool) -> None:
    run = Run(fast=fast).reads(a_frame(deltas(1, 2, 3, text="x" * (MIB - 100))))
    assert len(run.delivered) == 3


def _inline(size: int, **fields: Any) -> result_pb2.ArtifactCreated:
    content = types_pb2.InlineContent(data=b"x" * size, mime_type="image/png")
    return result_pb2.ArtifactCreated(inline=content, **fields)


def test_bytes_of_an_inline_artifact_do_not_count_against_the_result() -> None:
    run = Run().reads_results(a_result(1, artifact_created=_inline(MIB, summary="y" * 1000)))
    assert (run.fault, len(run.delivered)) == ("", 1)


def test_what_is_beside_an_inline_artifact_does_count() -> None:
    run = Run().reads_results(a_result(1, artifact_created=_inline(10, summary="y" * MIB)))
    assert str(MIB) in run.fault


@pytest.mark.parametrize("limit", [MIB, KIB, 2 * MIB])
def test_inline_artifact_has_a_limit_of_its_own(limit: int) -> None:
    limits = replace(Limits(), inline_artifact_bytes=limit)
    fits = Run(limits).reads_results(a_result(1, artifact_created=_inline(limit)))
    assert fits.fault == ""
    over = Run(limits).reads_results(a_result(1, artifact_created=_inline(limit + 1)))
    assert str(limit + 1) in over.fault
    assert str(limit) in over.fault.replace(str(limit + 1), "")


@pytest.mark.parametrize("limit", [10 * KIB, 2 * MIB])
@WAYS
def test_limit_of_a_result_is_the_operators(limit: int, *, fast: bool) -> None:
    limits = replace(Limits(), result_bytes=limit)
    fits = Run(limits, fast=fast).reads_results(*deltas(1, text="x" * (limit - 100)))
    assert fits.fault == ""
    message = result_pb2.MessageCompleted(message=a_message("x" * (limit - 100)))
    assert Run(limits).reads_results(a_result(1, message_completed=message)).fault == ""
    over = Run(limits, fast=fast).reads_results(*deltas(1, text="x" * limit))
    assert str(limit) in over.fault


@WAYS
def test_zero_characters_are_replaced_with_one_warning_a_result(*, fast: bool) -> None:
    run = Run(fast=fast).reads_results(*deltas(1, text="a\0b"), *deltas(2, text="c"))
    assert run.texts == ["a\ufffdb", "c"]
    assert run.warnings == ["text_repaired"]


def test_escapes_in_json_are_repaired_and_escaped_backslashes_left_alone() -> None:
    started = result_pb2.ToolCallStarted(
        call_id="c", tool_name="t", parameters_json=r'{"a": "x\u0000", "b": "\\u0000\ud800"}'
    )
    run = Run().reads_results(a_result(1, tool_call_started=started))
    repaired = run.delivered[0].tool_call_started.parameters_json
    assert repaired == r'{"a": "x\ufffd", "b": "\\u0000\ufffd"}'
    assert run.warnings == ["text_repaired"]


@pytest.mark.parametrize(
    ("payload", "field"),
    [
        ({"tool_call_started": result_pb2.ToolCallStarted(tool_name="t")}, "call_id"),
        (
            {
                "tool_call_started": result_pb2.ToolCallStarted(
                    call_id="c", tool_name="t", parameters_json="{"
                )
            },
            "parameters_json",
        ),
        ({"message_completed": result_pb2.MessageCompleted()}, "message_completed.message"),
        ({"run_completed": result_pb2.RunCompleted()}, "finish_reason"),
        ({"run_failed": result_pb2.RunFailed(code="c" * 101, message="m")}, "run_failed.code"),
    ],
)
@WAYS
def test_field_that_breaks_a_rule_ends_the_run_naming_it(
    payload: dict[str, Any], field: str, *, fast: bool
) -> None:
    run = Run(fast=fast).reads_results(a_result(1, **payload))
    assert field in run.fault
    assert "result 1" in run.fault
    assert run.delivered == []


def test_unknown_fields_of_a_result_go_on() -> None:
    sent = run_pb2.RunResponse(results=deltas(1))
    (result,) = sent.results
    extended = result_pb2.RunResult.FromString(result.SerializeToString() + b"\x98\x06\x07")
    run = Run().reads_results(extended)
    assert b"\x98\x06\x07" in run.delivered[0].SerializeToString()


# Runs as a confused runner would send them: mostly deltas in order, now and then something else.
_texts = st.sampled_from(["a", "b", "你", "", "\0", "x" * 900])
_payloads = st.one_of(
    *[st.builds(lambda text: {"message_delta": a_delta(text)}, _texts)] * 12,
    st.just({"tool_call_started": result_pb2.ToolCallStarted(call_id="c", tool_name="t")}),
    st.just({"tool_call_started": result_pb2.ToolCallStarted(call_id="c")}),
    st.just({"message_completed": result_pb2.MessageCompleted(message=a_message("m"))}),
    st.just({}),
    st.just({"run_completed": END}),
)
_steps = st.sampled_from([1] * 12 + [0, 2, -1, 5, -3])
_sent = st.lists(st.tuples(_steps, _payloads, st.sampled_from(["run-1"] * 30 + ["run-2"])))


def _results(sent: Iterable[tuple[int, Any, str]]) -> list[result_pb2.RunResult]:
    results, sequence = [], 0
    for step, payload, run_id in sent:
        sequence += step
        results.append(result_pb2.RunResult(run_id=run_id, sequence=sequence, **payload))
    return results


def _split(results: list[result_pb2.RunResult], cuts: list[bool]) -> list[Frame]:
    frames: list[list[result_pb2.RunResult]] = []
    for index, result in enumerate(results):
        if not frames or cuts[index % len(cuts)]:
            frames.append([])
        frames[-1].append(result)
    return [a_frame(each) for each in frames]


@given(_sent, st.lists(st.booleans(), min_size=1, max_size=12))
@settings(max_examples=150, deadline=None)
def test_outcome_is_the_same_however_results_are_put_into_frames_and_on_either_way(
    sent: list[tuple[int, Any, str]], cuts: list[bool]
) -> None:
    limits = replace(Limits(), result_bytes=800)
    results = _results(sent)
    one_by_one = Run(limits, fast=False).reads_results(*results).outcome()
    assert Run(limits).reads_results(*results).outcome() == one_by_one
    assert Run(limits).reads(*_split(results, cuts)).outcome() == one_by_one
    assert Run(limits, fast=False).reads(*_split(results, cuts)).outcome() == one_by_one
