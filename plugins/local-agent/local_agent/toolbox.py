r"""The tools of a run: what the model is told of them, and calling those that it wants.

::

    calls of one answer --> a task each, few at once --> results as they end
                                                     \-> messages for the model, in order

Whatever goes wrong with a call goes back to the model as its result: it can try something else.
"""

import asyncio
import json
import math
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from runmesh.v1.context_pb2 import ToolResource
from runmesh.v1.types_pb2 import ArtifactRef, ChatMessage, ContentPart, ToolCall, ToolDefinition

from runner_sdk import HostCallError, Result, RunContext
from runner_sdk.errors import DeadlineExceeded, HostUnavailable, NotFound, Unauthenticated
from runner_sdk.host import ToolAnswer
from runner_sdk.messages import tool_message

from .files import note_of

AT_ONCE = 8
"""So many calls of one answer run at the same time."""

# People wait for an answer, and a server that is down must cost them little.
_PATIENCE_SECONDS = 1.0
_SHOWN_PARAMETERS = 16_000
_PREVIEW = 500
# So much of a result is told with its end: all that is not an artifact, for who looks at the run
# later, or replays it.
_SHOWN_RESULT = 32_768
_DEEPEST = 60
_MALFORMED = 2000
_SHOWN_TYPES = frozenset({"image", "voice", "video"})


@dataclass(slots=True)
class Outcome:
    """What became of one call.

    Attributes:
        text: What the model is told.
        error_code: Why it failed, a word; empty: it did not.
        artifacts: Pictures and recordings that the tool made, for people to be shown.
    """

    text: str
    error_code: str = ""
    artifacts: Sequence[ArtifactRef] = field(default_factory=tuple)


class Toolbox:
    """The tools that a run was given.

    Attributes:
        definitions: What the model is told of them.
        warnings: What went wrong while they were looked at, in words for the run's log.
        messages: The results of the last calls, in their order, for the model.
        has_shown: Whether a tool made something that people were shown.
    """

    def __init__(self, ctx: RunContext) -> None:
        self._ctx = ctx
        self._under_way: dict[str, ToolCall] = {}
        self.definitions: list[ToolDefinition] = []
        self.warnings: list[str] = []
        self.messages: list[ChatMessage] = []
        self.has_shown = False

    async def open(self) -> None:
        """Reads the definitions. A tool that cannot be described costs itself, not the run."""
        found = await asyncio.gather(*map(self._definition, self._ctx.host.tools.available))
        self.definitions = [each for each in found if each is not None]

    async def _definition(self, tool: ToolResource) -> ToolDefinition | None:
        if tool.HasField("parameters_schema_json"):
            return ToolDefinition(
                name=tool.name,
                description=tool.description,
                parameters_schema_json=tool.parameters_schema_json,
            )
        try:
            return await self._detail(tool.name)
        except HostCallError as error:
            self.warnings.append(f"the tool {tool.name} is left out: {_told(error)}")
            return None

    async def _detail(self, name: str) -> ToolDefinition:
        """Asks for a definition, once more where its server has only just been started."""
        try:
            return (await self._ctx.host.tools.detail(name)).definition
        except HostUnavailable as error:
            if error.retry_after_seconds is None:
                raise
            await asyncio.sleep(min(error.retry_after_seconds, _PATIENCE_SECONDS))
        return (await self._ctx.host.tools.detail(name)).definition

    async def call(self, calls: Sequence[ToolCall]) -> AsyncGenerator[Result, None]:
        """Calls what a model wants called; yields what is to be shown of it as it happens."""
        room = asyncio.Semaphore(AT_ONCE)
        for call in calls:
            self._under_way[call.id] = call
            yield self._started(call)
        tasks = [asyncio.create_task(self._outcome(call, room)) for call in calls]
        places = {task: place for place, task in enumerate(tasks)}
        try:
            waiting = set(tasks)
            while waiting:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    for result in self._ended(calls[places[task]], task.result()):
                        yield result
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        self.messages = [
            tool_message(call.id, task.result().text, name=call.name)
            for call, task in zip(calls, tasks, strict=True)
        ]

    def cancelled(self) -> list[Result]:
        """Returns the ends of the calls that a run leaves behind when it is cancelled."""
        return [
            self._ctx.tool_completed(
                call.id, call.name, error_code="cancelled", error_message="the run was cancelled"
            )
            for call in self._under_way.values()
        ]

    def _started(self, call: ToolCall) -> Result:
        parameters, _ = _parsed(call.arguments_json)
        if parameters is None or len(call.arguments_json) > _SHOWN_PARAMETERS:
            preview = call.arguments_json[:_PREVIEW]
            return self._ctx.tool_started(call.id, call.name, preview=preview)
        return self._ctx.tool_started(call.id, call.name, parameters)

    def _ended(self, call: ToolCall, outcome: Outcome) -> list[Result]:
        self._under_way.pop(call.id, None)
        completed = self._ctx.tool_completed(
            call.id,
            call.name,
            preview=outcome.text[:_SHOWN_RESULT],
            error_code=outcome.error_code,
            error_message=outcome.text[:_PREVIEW] if outcome.error_code else "",
        )
        self.has_shown = self.has_shown or bool(outcome.artifacts)
        return [completed, *map(self._ctx.artifact, outcome.artifacts)]

    async def _outcome(self, call: ToolCall, room: asyncio.Semaphore) -> Outcome:
        known = [tool.name for tool in self.definitions]
        if call.name not in known:
            names = ", ".join(known) or "none"
            return Outcome(f"There is no tool {call.name!r}. The tools are: {names}.", "not_found")
        _, fault = _parsed(call.arguments_json)
        if fault:
            return Outcome(f"The tool was not called: its arguments {fault}.", "invalid_arguments")
        async with room:
            try:
                answer = await self._ctx.host.tools.call(
                    call.name, call.arguments_json, call_id=call.id
                )
            except (Unauthenticated, DeadlineExceeded):
                raise  # the run is over: there is nobody to be told
            except HostCallError as error:
                return _failure(call, error)
        return _answered(answer)


def usable(message: ChatMessage) -> ChatMessage:
    """Returns a model's answer as it can be given back: with arguments that are JSON objects.

    Providers that read the arguments of earlier calls refuse what the model itself has written.
    """
    if all(_parsed(call.arguments_json)[0] is not None for call in message.tool_calls):
        return message
    mended = ChatMessage()
    mended.CopyFrom(message)
    for call in mended.tool_calls:
        if _parsed(call.arguments_json)[0] is None:
            malformed = {"malformed_arguments": call.arguments_json[:_MALFORMED]}
            call.arguments_json = json.dumps(malformed, ensure_ascii=False)
    return mended


def _parsed(text: str) -> tuple[dict[str, Any] | None, str]:
    """Returns the arguments that a model wrote, or what is wrong with them."""
    try:
        value = json.loads(text.strip() or "{}", parse_constant=_refuse, parse_float=_number)
    except (ValueError, RecursionError) as error:
        return None, f"are not valid JSON: {error}"
    if not isinstance(value, dict):
        return None, "must be a JSON object"
    return (None, "are nested too deeply") if _is_deeper(value, _DEEPEST) else (value, "")


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _number(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text} is too large a number")
    return value


def _is_deeper(value: object, levels: int) -> bool:
    if not isinstance(value, dict | list):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_is_deeper(each, levels - 1) for each in inner)


def _failure(call: ToolCall, error: HostCallError) -> Outcome:
    if isinstance(error, NotFound):
        return Outcome(f"The tool {call.name} is not there any more.", "not_found")
    faults = "; ".join(f"{each.field}: {each.rule}" for each in error.violations)
    text = f"The tool {call.name} failed: {error.message}{faults and f' ({faults})'}"
    return Outcome(text, error.reason.lower())


def _answered(answer: ToolAnswer) -> Outcome:
    parts = list(answer.proto.parts)
    lines = [answer.text] if answer.text else []
    lines += [note_of(part) for part in parts if _is_file(part)]
    whole = answer.artifact
    if whole is not None:
        lines.append(
            f"[This is the beginning. The whole result has {whole.size_bytes} bytes and is the "
            f"artifact {whole.artifact_id}.]"
        )
    artifacts = [
        part.artifact
        for part in parts
        if part.HasField("artifact") and part.artifact.type in _SHOWN_TYPES
    ]
    text = "\n".join(lines) or "(The tool answered nothing.)"
    return Outcome(text, "tool_error" if answer.is_error else "", artifacts)


def _is_file(part: ContentPart) -> bool:
    return part.WhichOneof("content") not in {None, "text"}


def _told(error: HostCallError) -> str:
    return f"{error.message} ({error.reason})"
