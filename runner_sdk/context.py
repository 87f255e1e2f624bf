"""What a runner is handed with a run."""

import logging
from collections.abc import AsyncIterable, Awaitable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from runmesh.v1 import context_pb2, event_pb2

from runner_sdk._blocking import Blocking
from runner_sdk._interruption import Interruption
from runner_sdk._json import from_json
from runner_sdk.host import HostClient
from runner_sdk.results import ResultConstructors, StateScope, state_scope

_Value = TypeVar("_Value")
_logger = logging.getLogger("runner_sdk.runner")


@dataclass(frozen=True, slots=True)
class InitialState:
    """State as it was when the run started."""

    proto: context_pb2.StateSnapshot = field(repr=False)

    def get(self, scope: StateScope, key: str, default: Any = None) -> Any:
        """Returns the value of a key, or the default where it has none.

        Args:
            scope: `conversation`, `actor`, `subject`, `runner`, `binding` or `workspace`.
            key: The key.
            default: What to return where there is no value. See also `truncated`.
        """
        entries = self._entries(scope)
        return from_json(entries[key]) if key in entries else default

    def all(self, scope: StateScope) -> dict[str, Any]:
        """Returns all keys and values of a scope."""
        return {key: from_json(value) for key, value in self._entries(scope).items()}

    @property
    def truncated(self) -> bool:
        """Whether there was more than fits: read the rest with `ctx.host.state`."""
        return self.proto.truncated

    def _entries(self, scope: StateScope) -> Mapping[str, str]:
        state_scope(scope)
        entries: Mapping[str, str] = getattr(self.proto, f"{scope}_json")
        return entries


@dataclass(frozen=True, slots=True, eq=False)
class RunContext(ResultConstructors):
    """One run: the event, handles to everything else, and the constructors of results.

    It is frozen, as the run's rights are. There is no history in it: a runner pulls what it wants
    through `host`.

    Attributes:
        proto: The whole of what the host handed over. Most properties here are parts of it.
        config: The agent's configuration, checked against the manifest, defaults filled in.
            Secret fields carry their values. Integers keep all their digits.
        settings: The plugin's settings, as an operator of the run's host set them; secret ones are
            texts among them. Empty where nothing is set. Those of when the run started.
        host: Calls to the host, within this run's rights.
        interrupted: True once the run should stop; it can be waited for.
        deadline: When the run must have ended, by this machine's clock. None: no deadline.
        blocking: What `block_on`, `block_iter` and `block_with` wait with.
    """

    proto: context_pb2.RunContext = field(repr=False)
    config: Mapping[str, Any] = field(repr=False)
    settings: Mapping[str, Any] = field(repr=False)
    host: HostClient = field(repr=False)
    interrupted: Interruption = field(repr=False)
    deadline: datetime | None
    blocking: Blocking = field(repr=False)

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.proto.run_id

    @property
    def agent_id(self) -> str:
        """The agent that runs."""
        return self.proto.agent_id

    @property
    def session_key(self) -> str:
        """A stable text for this agent in this conversation: a key for sessions of your own."""
        return self.proto.session_key

    @property
    def event(self) -> context_pb2.EventContext:
        """What happened: id, type, time, source and, for some types, data."""
        return self.proto.event

    @property
    def input(self) -> event_pb2.EventInput:
        """What was said: text, parts, attachments. Empty for an event without input."""
        return self.proto.input

    @property
    def text(self) -> str:
        """What was said, as plain text. Empty where nothing was; `input.HasField("text")` tells."""
        return self.proto.input.text

    @property
    def conversation(self) -> context_pb2.Conversation | None:
        """Where the event belongs, or None."""
        return self.proto.conversation if self.proto.HasField("conversation") else None

    @property
    def actor(self) -> event_pb2.Actor | None:
        """Who caused the event, or None where nobody is named."""
        return self.proto.actor if self.proto.HasField("actor") else None

    @property
    def subject(self) -> event_pb2.Subject | None:
        """What the event is about, or None where nothing is named."""
        return self.proto.subject if self.proto.HasField("subject") else None

    @property
    def resources(self) -> context_pb2.AgentResources:
        """What this run may use: models, tools, knowledge bases, files, storage, actions."""
        return self.proto.resources

    @property
    def state(self) -> InitialState:
        """State as it was when the run started. To read it as it is now, use `host.state`."""
        return InitialState(self.proto.state)

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger for the process's log, naming the run. For the run's own log, yield `log`."""
        return _RunLogger(_logger, {"run_id": self.run_id})

    def remaining_seconds(self) -> float | None:
        """How long the run may still take, or None where it has no deadline."""
        return self.host.remaining_seconds()

    def block_on(self, call: Awaitable[_Value]) -> _Value:
        """For a plain `def run`: makes a call such as `ctx.host.prompt.get()` and waits for it.

        Raises:
            RuntimeError: It was called on the event loop, where only `await` can wait.
            CancelledError: The run was cancelled meanwhile.
        """
        return self.blocking.on(call)

    def block_iter(self, items: AsyncIterable[_Value]) -> Iterator[_Value]:
        """For a plain `def run`: iterates over what is made for `async for`.

        ::

            for item in ctx.block_iter(ctx.host.history.iterate()):
                ...
        """
        return self.blocking.iterate(items)

    def block_with(
        self, resource: AbstractAsyncContextManager[_Value]
    ) -> AbstractContextManager[_Value]:
        """For a plain `def run`: enters what is made for `async with`.

        ::

            with ctx.block_with(ctx.host.artifacts.open(ref)) as file:
                head = ctx.block_on(file.read(16))
        """
        return self.blocking.enter(resource)


class _RunLogger(logging.LoggerAdapter[logging.Logger]):
    def process(self, msg: Any, kwargs: Any) -> tuple[Any, Any]:
        kwargs.setdefault("extra", self.extra)
        return f"run {(self.extra or {})['run_id']}: {msg}", kwargs
