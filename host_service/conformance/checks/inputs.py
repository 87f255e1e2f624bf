"""Runs on inputs of every kind. What a runner makes of one is its own affair, but it must cope."""

from __future__ import annotations

from typing import Final

from runmesh.v1 import run_pb2

from host_service.conformance.check import Check
from host_service.conformance.findings import Failed, Skipped
from host_service.conformance.recorded_run import RecordedRun
from host_service.conformance.requests import (
    add_unknown_fields,
    fill_up,
    leave_bare,
    set_unknown_numbers,
)
from host_service.conformance.samples import EVENT_TYPES, TEXTS, long_line, long_text
from host_service.conformance.session import Session

# An event has 2 MiB as a whole.
_LARGE_BYTES = 2_000_000
_LONG_LINE_BYTES = 300_000
_SHOWN_CHARACTERS = 40


async def _text(session: Session) -> str:
    run = await session.run("a plain text")
    said = run.text
    return f"it said {_shown(said)}" if said else "it said nothing"


async def _empty(session: Session) -> str:
    await session.run_all(
        {"label": label, "text": text}
        for label, text in (("empty text", ""), ("no text", None), ("a space", " "))
    )
    return ""


async def _events(session: Session) -> str:
    await session.run_all(
        {"label": f"{event_type} without text", "text": None, "event_type": event_type}
        for event_type in EVENT_TYPES
    )
    return f"{len(EVENT_TYPES)} types"


async def _large(session: Session) -> str:
    await session.run("large text", long_text(_LARGE_BYTES), change=_drop_parts)
    await session.run("large data", "data", change=_add_large_data)
    return f"up to {_LARGE_BYTES:,} bytes"


def _drop_parts(request: run_pb2.RunRequest) -> None:
    # They have the text once more, and both together would be too large.
    del request.context.input.parts[:]


def _add_large_data(request: run_pb2.RunRequest) -> None:
    request.context.event.data_json = '{"a":"' + "\u4f60" * 400_000 + '"}'


async def _unicode(session: Session) -> str:
    runs = [{"label": f"text: {name}", "text": text} for name, text in TEXTS.items()]
    runs.append({"label": "text: one long line", "text": long_line(_LONG_LINE_BYTES)})
    await session.run_all(runs)
    return f"{len(runs)} texts"


async def _minimal(session: Session) -> str:
    await session.run("only what is required", None, change=leave_bare, timeout_seconds=None)
    return ""


async def _full(session: Session) -> str:
    await session.run("everything that may be set", change=fill_up)
    return ""


async def _later_fields(session: Session) -> str:
    await session.run("fields from a later version", change=add_unknown_fields)
    return ""


async def _later_numbers(session: Session) -> str:
    await session.run("enum numbers from a later version", change=set_unknown_numbers)
    return ""


async def _echo(session: Session) -> str:
    if not session.is_echo:
        raise Skipped("the runner is not known to echo: --echo says that it does")
    texts = {**TEXTS, "one long line": long_line(_LONG_LINE_BYTES), "long": long_text(100_000)}
    runs = await session.run_all(
        {"label": f"echo: {name}", "text": text} for name, text in texts.items()
    )
    for run, (name, text) in zip(runs, texts.items(), strict=True):
        _must_be_same(run, name, text)
    return f"{len(runs)} texts"


def _must_be_same(run: RecordedRun, name: str, text: str) -> None:
    if run.text == text:
        return
    place = next(
        (at for at, (one, other) in enumerate(zip(text, run.text, strict=False)) if one != other),
        min(len(text), len(run.text)),
    )
    raise Failed(
        expected=f"the text {name!r} back, character by character",
        got=f"{_shown(run.text[place:])} where {_shown(text[place:])} stands, from character "
        f"{place} of {len(text)}",
        advice="treat text as UTF-8: do not normalize, strip, cut inside a character, or re-encode",
    )


def _shown(text: str) -> str:
    short = text[:_SHOWN_CHARACTERS]
    return ascii(short) + ("..." if len(text) > len(short) else "")


_RUN = "run.proto, RunService.Run"

CHECKS: Final = (
    Check("input.text", "A run on a message ends as a run must.", _RUN, _text),
    Check(
        "input.empty",
        "An empty text, and none, are inputs like any other.",
        "event.proto, EventInput.text",
        _empty,
    ),
    Check(
        "input.events",
        "Events of every type may come without text.",
        "event.proto, EventEnvelope.type",
        _events,
    ),
    Check("input.large", "An event may have up to 2 MiB.", "event.proto, EventEnvelope", _large),
    Check(
        "input.unicode",
        "Text is any Unicode but U+0000 and lone surrogates.",
        "types.proto, the rules that hold everywhere",
        _unicode,
    ),
    Check("input.minimal", "What is optional may be absent.", "context.proto", _minimal),
    Check(
        "input.full",
        "What is optional may be there, with the largest numbers.",
        "context.proto",
        _full,
    ),
    Check(
        "input.unknown-fields",
        "Fields that a reader does not know are ignored.",
        "types.proto, the rules that hold everywhere",
        _later_fields,
    ),
    Check(
        "input.unknown-numbers",
        "Enum numbers that a reader does not know are ignored.",
        "types.proto, the rules that hold everywhere",
        _later_numbers,
    ),
    Check("input.echo", "An echo gives back the very text.", _RUN, _echo),
)
