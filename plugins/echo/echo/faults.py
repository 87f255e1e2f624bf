"""Ways to misbehave: for tests of hosts. Most of them break the contract on the wire."""

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

from runner_sdk import RunContext
from runner_sdk.testing import RunResult, Unchecked

_OVERSIZED_BYTES = 2 * 1024 * 1024
# A field of RunResult that no version has: number 1000, one varint.
_UNKNOWN_PAYLOAD = b"\xc0\x3e\x01"


async def misbehave(ctx: RunContext, failure: str) -> AsyncIterator[Any]:
    """Yields a little text, and then what the fault is."""
    if failure == "empty":
        return
    yield ctx.delta("Before the fault. ")
    match failure:
        case "error":
            yield ctx.failed("echo.asked", "the configuration asks for a failure", retryable=True)
        case "exception":
            raise ValueError("the configuration asks for an exception")
        case "crash":
            # The line above must be on its way before the process is gone.
            await asyncio.sleep(0.05)
            os._exit(70)
        case "hang":
            await _hang()
        case _:
            yield Unchecked(tuple(_broken(ctx.run_id, failure)))


async def _hang() -> None:
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue


def _broken(run_id: str, failure: str) -> list[RunResult]:
    """Makes the results that follow the first one, whose number is 1."""
    match failure:
        case "no_terminal":
            return []
        case "duplicate_sequence":
            return [_delta(run_id, 2), _delta(run_id, 2), _end(run_id, 3)]
        case "gap":
            return [_delta(run_id, 5), _delta(run_id, 3), _end(run_id, 6)]
        case "wrong_run_id":
            return [_delta("another-run", 2), _end(run_id, 3)]
        case "oversized":
            return [_delta(run_id, 2, "x" * _OVERSIZED_BYTES), _end(run_id, 3)]
        case "unknown_type":
            unknown = RunResult.FromString(_UNKNOWN_PAYLOAD)
            unknown.run_id, unknown.sequence = run_id, 2
            return [unknown, _end(run_id, 3)]
        case "after_terminal":
            return [_end(run_id, 2), _delta(run_id, 3), _end(run_id, 4)]
        case _:
            raise ValueError(f"failure: {failure!r} is not known")


def _delta(run_id: str, sequence: int, text: str = "x") -> RunResult:
    result = RunResult(run_id=run_id, sequence=sequence)
    result.message_delta.text = text
    return result


def _end(run_id: str, sequence: int) -> RunResult:
    result = RunResult(run_id=run_id, sequence=sequence)
    result.run_completed.finish_reason = "stop"
    return result
