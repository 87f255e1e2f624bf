"""What a runner yields: constructors of results.

A run's context has each of them as a method. Numbers, ids and times are filled in where a result
is sent, so the same object may be yielded twice, and a result may be made anywhere.
"""

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Literal, ParamSpec, TypeAlias

from runmesh.v1 import result_pb2, types_pb2
from runmesh.v1.result_pb2 import RunResult

from runner_sdk._json import to_json
from runner_sdk._text import Delta, mend_all

StateScope: TypeAlias = Literal[
    "conversation", "actor", "subject", "runner", "binding", "workspace"
]
Part: TypeAlias = str | types_pb2.ContentPart | types_pb2.ArtifactRef
Result: TypeAlias = RunResult | Delta
"""What a runner yields. Make one with the methods of the run's context."""

_Arguments = ParamSpec("_Arguments")

# A named tuple's own constructor takes twice as long, and most results are made here.
_new_delta = tuple.__new__


def _mending(make: Callable[_Arguments, RunResult]) -> Callable[_Arguments, RunResult]:
    """Lets a constructor take text that protobuf refuses: mended, but only when it is refused."""

    @functools.wraps(make)
    def make_mended(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> RunResult:
        try:
            return make(*args, **kwargs)
        except UnicodeEncodeError:
            mended = {name: mend_all(value) for name, value in kwargs.items()}
            return make(*map(mend_all, args), **mended)

    return make_mended


def state_scope(scope: StateScope) -> result_pb2.StateScope.ValueType:
    """Returns a scope's number in the contract.

    Raises:
        ValueError: There is no such scope.
    """
    try:
        return result_pb2.StateScope.Value(f"STATE_SCOPE_{scope.upper()}")
    except ValueError:
        known = ", ".join(StateScope.__args__)  # type: ignore[attr-defined]
        raise ValueError(f"scope: {scope!r} is none of {known}") from None


def assistant_message(
    parts: Iterable[Part],
    *,
    message_id: str = "",
    reasoning: str | None = None,
    artifacts: Iterable[types_pb2.ArtifactRef] = (),
    metadata: Mapping[str, str] | None = None,
) -> types_pb2.ChatMessage:
    """Makes a message of the assistant's. Parts may be plain text or artifact refs."""
    return types_pb2.ChatMessage(
        message_id=message_id,
        role=types_pb2.CHAT_ROLE_ASSISTANT,
        parts=[content_part(part) for part in parts],
        reasoning_text=reasoning,
        artifacts=artifacts,
        metadata=metadata or {},
    )


def content_part(part: Part) -> types_pb2.ContentPart:
    """Makes a part of a message: of text, of an artifact's ref; a part stays as it is."""
    match part:
        case str():
            return types_pb2.ContentPart(text=part)
        case types_pb2.ArtifactRef():
            return types_pb2.ContentPart(artifact=part)
        case _:
            return part


class ResultConstructors:
    """Makes results. Each method returns one, to be yielded."""

    __slots__ = ()

    @staticmethod
    def delta(text: str, message_id: str = "") -> Result:
        """A piece of the message in progress.

        Args:
            text: Text to append. Empty text is not sent.
            message_id: Which message, where several are written at once.
        """
        return _new_delta(Delta, (text, False, message_id))

    @staticmethod
    def reasoning(text: str, message_id: str = "") -> Result:
        """A piece of reasoning: shown apart, never part of the message.

        Args:
            text: Text to append. Empty text is not sent.
            message_id: Which message, where several are written at once.
        """
        return _new_delta(Delta, (text, True, message_id))

    @staticmethod
    @_mending
    def delta_parts(*parts: Part, message_id: str = "") -> RunResult:
        """Parts to append to the message in progress: text, artifact refs or content parts."""
        return RunResult(
            message_delta=result_pb2.MessageDelta(
                message_id=message_id, parts=[content_part(part) for part in parts]
            )
        )

    @staticmethod
    @_mending
    def reply(text: str, message_id: str = "") -> RunResult:
        """A whole message of text. It replaces the deltas of the same message."""
        return RunResult(
            message_completed=result_pb2.MessageCompleted(
                message=assistant_message([text], message_id=message_id)
            )
        )

    @staticmethod
    @_mending
    def message(
        *parts: Part,
        message_id: str = "",
        reasoning: str | None = None,
        artifacts: Iterable[types_pb2.ArtifactRef] = (),
        metadata: Mapping[str, str] | None = None,
    ) -> RunResult:
        """A whole message of parts. It replaces the deltas of the same message.

        Args:
            *parts: Text, artifact refs or content parts, in order.
            message_id: Which message. Empty: the one in progress, or a new one.
            reasoning: What the model thought aloud, the whole of it.
            artifacts: Artifacts that belong to the message and are not parts of it. Those created
                since the last message are attached by the host.
            metadata: Notes that nothing depends on.
        """
        message = assistant_message(
            parts,
            message_id=message_id,
            reasoning=reasoning,
            artifacts=artifacts,
            metadata=metadata,
        )
        return RunResult(message_completed=result_pb2.MessageCompleted(message=message))

    @staticmethod
    @_mending
    def tool_started(
        call_id: str, tool_name: str, parameters: object = None, preview: str = ""
    ) -> RunResult:
        """A tool call has begun.

        Args:
            call_id: The call's id.
            tool_name: The tool.
            parameters: The parameters, a JSON value. None: not to be told.
            preview: A short form of them to show, where they are large or private.
        """
        return RunResult(
            tool_call_started=result_pb2.ToolCallStarted(
                call_id=call_id,
                tool_name=tool_name,
                parameters_json=_optional_json(parameters, "parameters"),
                preview=preview,
            )
        )

    @staticmethod
    @_mending
    def tool_completed(
        call_id: str,
        tool_name: str,
        result: object = None,
        preview: str = "",
        error_code: str = "",
        error_message: str = "",
    ) -> RunResult:
        """A tool call has ended.

        Args:
            call_id: The call's id.
            tool_name: The tool.
            result: The result, a JSON value. None: not to be told.
            preview: A short form of it to show.
            error_code: Why it failed, a word such as `timeout`. Empty: it did not fail.
            error_message: Why it failed, for people.
        """
        return RunResult(
            tool_call_completed=result_pb2.ToolCallCompleted(
                call_id=call_id,
                tool_name=tool_name,
                result_json=_optional_json(result, "result"),
                preview=preview,
                error_code=error_code,
                error_message=error_message,
            )
        )

    @staticmethod
    @_mending
    def artifact(
        content: types_pb2.ArtifactRef | bytes,
        mime_type: str = "application/octet-stream",
        name: str = "",
        type: str = "file",
        summary: str = "",
    ) -> RunResult:
        """An artifact that belongs to the conversation; the next message carries it.

        Args:
            content: The ref of an uploaded artifact, or up to 1 MiB of bytes.
            mime_type: For bytes: the media type.
            name: For bytes: a file name to show.
            type: For bytes: `image`, `file`, `voice`, `video`, or another word.
            summary: For bytes: a sentence on what is in it.
        """
        if isinstance(content, types_pb2.ArtifactRef):
            return RunResult(artifact_created=result_pb2.ArtifactCreated(ref=content))
        inline = types_pb2.InlineContent(data=content, mime_type=mime_type, name=name)
        return RunResult(
            artifact_created=result_pb2.ArtifactCreated(inline=inline, type=type, summary=summary)
        )

    @staticmethod
    @_mending
    def set_state(scope: StateScope, key: str, value: object) -> RunResult:
        """State to keep: fire and forget. To read your own write, call `ctx.host.state.set`.

        Args:
            scope: `conversation`, `actor`, `subject`, `runner`, `binding` or `workspace`.
            key: The key, 1 to 255 bytes.
            value: A JSON value of at most 256 KiB. None is a value.
        """
        return RunResult(
            state_updated=result_pb2.StateUpdated(
                scope=state_scope(scope),
                key=key,
                value_json=to_json(value, field=f"state {scope} {key!r}"),
            )
        )

    @staticmethod
    @_mending
    def request_action(
        action: str,
        target: object = None,
        payload: object = None,
        *,
        idempotency_key: str,
        approval_hint: Literal["", "not_needed", "advised"] = "",
    ) -> RunResult:
        """An action on the platform is asked for. Policy decides whether it is executed.

        Args:
            action: The action's name, such as `message.send`; the manifest declares it.
            target: What to act on, a JSON value.
            payload: What to do it with, a JSON value.
            idempotency_key: The same key never executes twice.
            approval_hint: Whether a person should look first, as the runner sees it.
        """
        hint = f"APPROVAL_HINT_{approval_hint.upper() or 'UNSPECIFIED'}"
        return RunResult(
            action_requested=result_pb2.ActionRequested(
                action=action,
                target_json=_optional_json(target, "target"),
                payload_json=_optional_json(payload, "payload"),
                idempotency_key=idempotency_key,
                approval_hint=result_pb2.ApprovalHint.Value(hint),
            )
        )

    @staticmethod
    @_mending
    def usage(
        model: str | types_pb2.TokenUsage,
        *,
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        reasoning_tokens: int | None = None,
        cache_read_tokens: int | None = None,
        cache_write_tokens: int | None = None,
    ) -> RunResult:
        """Tokens that one model used so far in this run. It replaces the report before it.

        A count that is not known is left out: unknown is not zero.

        Args:
            model: The model's id; or the usage as `ctx.host.models` gives it, with its counts.
            input_tokens: Tokens read, cached ones included.
            output_tokens: Tokens written, reasoning included.
            reasoning_tokens: Tokens of the output that were reasoning.
            cache_read_tokens: Tokens of the input that came from the provider's cache.
            cache_write_tokens: Tokens that were written into it.
        """
        usage = types_pb2.TokenUsage(
            model_id=model if isinstance(model, str) else "",
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            reasoning_tokens=reasoning_tokens,
            cache_read_tokens=cache_read_tokens,
            cache_write_tokens=cache_write_tokens,
        )
        if not isinstance(model, str):
            usage.MergeFrom(model)
        return RunResult(usage_reported=result_pb2.UsageReported(usage=[usage]))

    @staticmethod
    @_mending
    def log(text: str, level: Literal["debug", "info", "warning", "error"] = "info") -> RunResult:
        """A line for the run's log, which people who run the agent read. Never a message."""
        number = result_pb2.LogLevel.Value(f"LOG_LEVEL_{level.upper()}")
        return RunResult(log=result_pb2.LogLine(level=number, text=text))

    @staticmethod
    @_mending
    def completed(
        finish_reason: str = "stop",
        *,
        message: str | types_pb2.ChatMessage | None = None,
        usage: Iterable[types_pb2.TokenUsage] = (),
    ) -> RunResult:
        """The run ended well. A run that ends without saying so has ended so, with `stop`.

        Args:
            finish_reason: `stop`, `length`, `tool_limit`, `silent` (it chose to say nothing), or
                another word.
            message: A final message, for runners that send nothing else.
            usage: Final usage, one entry a model. It takes the place of all earlier reports.
        """
        if isinstance(message, str):
            message = assistant_message([message])
        return RunResult(
            run_completed=result_pb2.RunCompleted(
                finish_reason=finish_reason, message=message, usage=usage
            )
        )

    @staticmethod
    @_mending
    def failed(
        code: str,
        message: str,
        *,
        retryable: bool = False,
        details: Mapping[str, str] | None = None,
    ) -> RunResult:
        """The run ended badly. Raising RunFailure says the same.

        Args:
            code: `runner.error`, or a word under the runner's own prefix.
            message: What happened, for people. No stack trace, path or secret.
            retryable: Whether the same event might succeed later.
            details: Facts that help, by name.
        """
        return RunResult(
            run_failed=result_pb2.RunFailed(
                code=code, message=message, retryable=retryable, details=details or {}
            )
        )


def _optional_json(value: object, field: str) -> str | None:
    return None if value is None else to_json(value, field=field)
