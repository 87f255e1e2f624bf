"""The rules of a run's results, looked at in every run that the other checks made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import grpc
from google.protobuf.unknown_fields import UnknownFieldSet
from runmesh.v1 import result_pb2

from host_service.conformance.check import Check
from host_service.conformance.findings import Failed, Skipped
from host_service.conformance.recorded_run import TERMINAL, RecordedRun
from host_service.conformance.samples import long_text
from host_service.conformance.session import Session
from host_service.limits import Limits
from host_service.validation import find_violations

_LIMITS = Limits()
_SAID: Final = frozenset({"artifact_created", "action_requested"})
_LONG_TEXT = long_text(1_200_000)


@dataclass(frozen=True, slots=True)
class Breach:
    """What in a run breaks a rule."""

    expected: str
    got: str


Finder = Callable[[RecordedRun], Iterator[Breach]]


def _check(name: str, asks: str, source: str, find: Finder, advice: str) -> Check:
    async def look(session: Session) -> str:
        runs = await _runs_of(session)
        broken = [(run, breach) for run in runs for breach in find(run)]
        if not broken:
            return f"{len(runs)} runs"
        run, breach = broken[0]
        others = len({each.label for each, _ in broken}) - 1
        more = f", and {others} other runs" if others else ""
        raise Failed(
            expected=breach.expected, got=f"{breach.got} in {run.label}{more}", advice=advice
        )

    return Check(f"results.{name}", asks, source, look)


async def _runs_of(session: Session) -> list[RecordedRun]:
    """The runs that ended by themselves; makes some where none were made; Skipped without any."""
    if not session.runs:
        for label, text in (("a plain text", "Hello, runner."), ("long text", _LONG_TEXT)):
            await session.must_end(session.start(label, text))
    runs = [run for run in session.runs if _counts(run)]
    if not runs:
        raise Skipped("no run ended by itself with status OK, so there is nothing to look at")
    return runs


def _counts(run: RecordedRun) -> bool:
    return run.status is grpc.StatusCode.OK and not run.cancelled


def _readable(run: RecordedRun) -> Iterator[Breach]:
    for number, frame in enumerate(run.frames, start=1):
        if frame.response is None:
            yield Breach("frames that are RunResponse", f"frame {number}, which is none,")
        elif not frame.response.results:
            yield Breach("one or more results in a frame", f"none in frame {number}")
        elif frame.mended:
            yield Breach("texts in UTF-8", f"other bytes in {', '.join(frame.mended[:3])}")


def _run_id(run: RecordedRun) -> Iterator[Breach]:
    for result in run.results:
        if result.run_id != run.run_id:
            yield Breach(
                f"run_id {run.run_id!r} in every result",
                f"{result.run_id[:64]!r} in result {result.sequence}",
            )


def _sequence(run: RecordedRun) -> Iterator[Breach]:
    for expected, result in enumerate(run.results, start=1):
        if result.sequence != expected:
            yield Breach(
                f"sequence {expected} in the result that came as number {expected}",
                f"sequence {result.sequence}",
            )
            return


def _first_sequence(run: RecordedRun) -> Iterator[Breach]:
    for result in run.results:
        if result.first_sequence:
            yield Breach("first_sequence left to the host", f"{result.first_sequence}")


def _terminal(run: RecordedRun) -> Iterator[Breach]:
    if run.terminal is None:
        yield Breach(
            "run_completed or run_failed at the end of the stream",
            f"{len(run.results)} results, none of them terminal,",
        )


def _one_terminal(run: RecordedRun) -> Iterator[Breach]:
    ends = [each for each in run.results if _kind(each) in TERMINAL]
    if len(ends) > 1:
        yield Breach(
            "exactly one terminal result",
            f"{len(ends)} ({', '.join(str(_kind(each)) for each in ends)})",
        )


def _nothing_after(run: RecordedRun) -> Iterator[Breach]:
    kinds = [_kind(each) for each in run.results]
    first = next((at for at, kind in enumerate(kinds) if kind in TERMINAL), len(kinds))
    late = [kind for kind in kinds[first + 1 :] if kind not in TERMINAL]
    if late:
        yield Breach("nothing after the terminal result", f"{late[0] or 'a result'} after it")


def _fields(run: RecordedRun) -> Iterator[Breach]:
    for result in run.results:
        # A type from a later version is ignored by hosts; plain deltas have nothing to look at.
        if _is_plain(result) or (_kind(result) is None and UnknownFieldSet(result)):
            continue
        for violation in find_violations(result):
            if not violation.is_unknown and violation.limit is None:
                yield Breach(
                    f"{violation.field}: {violation.rule}",
                    f"{violation.got} in result {result.sequence}",
                )


def _is_plain(result: result_pb2.RunResult) -> bool:
    """Whether a result is a delta of text in the message in progress, and no more."""
    return (
        result.HasField("message_delta")
        and not result.message_delta.message_id
        and not result.message_delta.parts
        and not result.metadata
        and "\0" not in result.message_delta.text
    )


def _result_size(run: RecordedRun) -> Iterator[Breach]:
    for result in run.results:
        inline = 0
        if result.HasField("artifact_created"):
            inline = len(result.artifact_created.inline.data)
        if inline > _LIMITS.inline_artifact_bytes:
            yield Breach(
                f"at most {_LIMITS.inline_artifact_bytes:,} bytes in an inline artifact",
                f"{inline:,} bytes in result {result.sequence}",
            )
        if result.ByteSize() - inline > _LIMITS.result_bytes:
            yield Breach(
                f"at most {_LIMITS.result_bytes:,} bytes in a result",
                f"{result.ByteSize() - inline:,} bytes in result {result.sequence}",
            )


def _frame_size(run: RecordedRun) -> Iterator[Breach]:
    for number, frame in enumerate(run.frames, start=1):
        if frame.size_bytes > _LIMITS.frame_bytes:
            yield Breach(
                f"at most {_LIMITS.frame_bytes:,} bytes in a frame",
                f"{frame.size_bytes:,} bytes in frame {number}",
            )


def _said_something(run: RecordedRun) -> Iterator[Breach]:
    end = run.terminal
    if run.request.context.event.type != "message.received" or end is None:
        return
    if not end.HasField("run_completed") or end.run_completed.finish_reason == "silent":
        return
    if not any(_says(result) for result in run.results):
        yield Breach(
            "a text, a part, an artifact or an action before a run_completed that is not `silent`",
            "nothing at all",
        )


def _says(result: result_pb2.RunResult) -> bool:
    if result.HasField("message_delta"):
        return bool(result.message_delta.text or result.message_delta.parts)
    if result.HasField("message_completed"):
        message = result.message_completed.message
    elif result.HasField("run_completed"):
        message = result.run_completed.message
    else:
        return _kind(result) in _SAID
    return bool(message.artifacts) or any(
        part.text or part.WhichOneof("content") not in {None, "text"} for part in message.parts
    )


def _kind(result: result_pb2.RunResult) -> str | None:
    return result.WhichOneof("payload")


async def _streaming(session: Session) -> str:
    runs = await _runs_of(session)
    deltas = next(
        (run for run in runs if any(each.HasField("message_delta") for each in run.results)), None
    )
    if deltas is not None and not session.manifest.capabilities.streaming:
        raise Failed(
            expected="no message_delta from a runner without the capability `streaming`",
            got=f"message_delta in {deltas.label}",
            advice="say `streaming: true` among the manifest's capabilities",
        )
    return "" if deltas is not None else "it sent no deltas"


_RESULT = "result.proto, RunResult"

CHECKS: Final = (
    _check(
        "readable",
        "Every frame is a RunResponse with results, its texts UTF-8.",
        "run.proto, RunResponse",
        _readable,
        "send RunResponse messages as the generated code writes them",
    ),
    _check(
        "run-id",
        "Every result names its run.",
        f"{_RESULT}.run_id",
        _run_id,
        "copy context.run_id of the request into every result; keep no run's state in globals",
    ),
    _check(
        "sequence",
        "A run's results are numbered 1, 2, 3, in the order they are sent.",
        f"{_RESULT}.sequence",
        _sequence,
        "count in one place, where results are sent, beginning with 1 for each run",
    ),
    _check(
        "first-sequence",
        "What only a host may set is left alone.",
        f"{_RESULT}.first_sequence",
        _first_sequence,
        "leave first_sequence unset",
    ),
    _check(
        "terminal",
        "A run ends with a terminal result.",
        f"{_RESULT}.run_completed",
        _terminal,
        "send run_completed at the end of every run, or run_failed where it fails",
    ),
    _check(
        "one-terminal",
        "A run has exactly one terminal result.",
        f"{_RESULT}.run_completed",
        _one_terminal,
        "return from Run when you have sent run_completed or run_failed",
    ),
    _check(
        "nothing-after",
        "Nothing follows the terminal result.",
        f"{_RESULT}.run_completed",
        _nothing_after,
        "send the terminal result last: hosts drop what comes after it",
    ),
    _check(
        "fields",
        "Every field of a result is as its comment says.",
        "result.proto",
        _fields,
        "mend the named field: a host ends the run with runner.protocol",
    ),
    _check(
        "size",
        "A result has at most 1 MiB, an inline artifact not counted.",
        _RESULT,
        _result_size,
        "send long texts as several deltas, and large values as artifacts",
    ),
    _check(
        "frame-size",
        "A frame has at most 3 MiB.",
        "run.proto, RunResponse",
        _frame_size,
        "begin a new RunResponse before it has 3 MiB",
    ),
    _check(
        "something-said",
        "A run on a message says something, or `silent`.",
        "result.proto, RunCompleted.finish_reason",
        _said_something,
        "where there is nothing to say, finish with the reason `silent`",
    ),
    Check(
        "results.streaming",
        "Deltas come from runners that say so.",
        "manifest.proto, RunnerCapabilities.streaming",
        _streaming,
    ),
)
