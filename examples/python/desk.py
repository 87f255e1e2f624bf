"""The runner `desk`: does what the first word of a message asks for, by calls of its host."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator

from runmesh.v1.host_api_pb2 import TRANSCRIPT_KIND_MESSAGE
from runmesh.v1.result_pb2 import RunResult, ToolCallStarted
from runmesh.v1.types_pb2 import ChatRole

from runner_sdk import AgentRunner, HostCallError, Result, RunContext, RunFailure
from runner_sdk.host import ToolAnswer

USAGE = "Ask me to: count, recall, file NAME, tool NAME JSON, or wait SECONDS."

# How many messages `recall` recalls.
_RECALLED = 5
_LONGEST_WAIT_SECONDS = 1e6
_CALL_ID = "desk-1"


class Desk(AgentRunner):
    """Does what the first word of a message asks for."""

    name = "desk"

    async def run(self, ctx: RunContext) -> AsyncIterator[Result]:
        """Does it; what the host refuses ends the run, and says which call and why."""
        try:
            async for result in _answer(ctx):
                yield result
        except HostCallError as error:
            raise RunFailure(
                "desk.refused",
                f"the host refused: {error.message}",
                retryable=error.retryable,
                details={"method": error.method, "reason": error.reason},
            ) from error


async def _answer(ctx: RunContext) -> AsyncIterator[Result]:
    word, rest = _cut(ctx.text)
    match word:
        case "count":
            # Compare-and-set, again where another run was faster.
            number = await ctx.host.state["conversation"].update(
                "count", lambda n: n + 1, default=0
            )
            yield ctx.reply(f"message {number} of this conversation")
        case "recall":
            yield ctx.reply(await _transcript(ctx, most=_RECALLED))
        case "file" if rest:
            async for result in _file(ctx, rest):
                yield result
        case "tool" if rest:
            async for result in _tool(ctx, *_cut(rest)):
                yield result
        case "wait" if (seconds := _seconds(rest)) is not None:
            yield ctx.delta("waiting")
            await asyncio.sleep(seconds)
            yield ctx.reply(f"waited {rest} s")
        case _:
            yield ctx.reply(USAGE)


async def _file(ctx: RunContext, name: str) -> AsyncIterator[Result]:
    """Stores the conversation so far as an artifact."""
    content = (await _transcript(ctx)).encode()
    ref = await ctx.host.artifacts.create(content, name=name, mime_type="text/plain; charset=utf-8")
    yield ctx.artifact(ref)
    digest = hashlib.sha256(content).hexdigest()
    yield ctx.reply(f"{name}, {len(content)} bytes, sha256 {digest}")


async def _tool(ctx: RunContext, name: str, parameters: str) -> AsyncIterator[Result]:
    """Calls a tool with a text of JSON, as it is."""
    parameters = parameters or "{}"
    yield _started(name, parameters)
    answer = await ctx.host.tools.call(name, parameters, call_id=_CALL_ID)
    text = _text(answer)
    if answer.is_error:
        yield ctx.tool_completed(_CALL_ID, name, error_code="failed", error_message=text)
        yield ctx.reply(f"{name} failed: {text}")
    else:
        yield ctx.tool_completed(_CALL_ID, name, preview=text)
        yield ctx.reply(text)


def _started(name: str, parameters: str) -> RunResult:
    """Says that a tool is called; what is no JSON is shown as it is, and the host says why."""
    started = ToolCallStarted(call_id=_CALL_ID, tool_name=name)
    try:
        json.loads(parameters, parse_constant=_refuse_constant)
    except ValueError:
        started.preview = parameters
    else:
        # The context's own constructor takes a value; this is its text, digits and all.
        started.parameters_json = parameters
    return RunResult(tool_call_started=started)


async def _transcript(ctx: RunContext, most: int = 0) -> str:
    """Writes the conversation's last messages, or all of them for 0, oldest first."""
    lines: list[str] = []
    async for item in ctx.host.history.iterate(page_size=most or 100):
        if item.kind == TRANSCRIPT_KIND_MESSAGE:
            role = ChatRole.Name(item.role).removeprefix("CHAT_ROLE_").lower()
            lines.append(f"{role}: {item.text}")
        if most and len(lines) == most:
            break
    return "\n".join(reversed(lines)) or "nothing yet"


def _refuse_constant(name: str) -> None:
    """Refuses what Python reads beyond JSON, such as NaN."""
    raise ValueError(name)


def _text(answer: ToolAnswer) -> str:
    """What a tool answered, as text."""
    texts = [part.text for part in answer.proto.parts if part.text]
    return "\n".join(texts) or answer.proto.result_json or answer.proto.preview or "(no text)"


def _seconds(text: str) -> float | None:
    try:
        seconds = float(text)
    except ValueError:
        return None
    return seconds if 0 <= seconds < _LONGEST_WAIT_SECONDS else None


def _cut(text: str) -> tuple[str, str]:
    """Takes the first word off a text."""
    word, _, rest = text.strip().partition(" ")
    return word, rest.strip()
