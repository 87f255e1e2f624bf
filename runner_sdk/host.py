"""Calls to the host, within one run: with its tokens, its deadline and its trace.

`ctx.host` has a client for each of the contract's nouns::

    models      invoke, stream, rerank, embed
    tools       detail, definitions, call
    knowledge   list, iterate, retrieve
    history     page, iterate, search, search_page, iterate_search
    events      get, page, iterate
    artifacts   metadata, read_range, open, create
    state       get, set, delete, list, iterate; state["conversation"] has one scope
    storage     get, find, set, delete, list, iterate
    prompt      get
    actions     request
    steering    pull, acknowledge

The names here are for annotations; a run's clients are made with its context.
"""

from collections.abc import Callable, Sequence
from typing import Any

from google.protobuf.message import Message
from runmesh.v1.context_pb2 import ToolResource
from runmesh.v1.run_pb2 import HostAccess

from runner_sdk._host.actions import ActionOutcome, Actions
from runner_sdk._host.artifact_file import ArtifactFile
from runner_sdk._host.artifacts import Artifacts
from runner_sdk._host.calls import HostCalls
from runner_sdk._host.events import Events
from runner_sdk._host.history import History
from runner_sdk._host.knowledge import Knowledge
from runner_sdk._host.metadata import CallMetadata
from runner_sdk._host.models import ModelAnswer, Models, ModelStream
from runner_sdk._host.prompt import Prompt
from runner_sdk._host.state import ScopedState, State, StateValue
from runner_sdk._host.steering import FollowUp, Steering, SteeringStream
from runner_sdk._host.storage import Storage
from runner_sdk._host.streams import HostStream
from runner_sdk._host.tools import ToolAnswer, Tools
from runner_sdk._trace import RunTrace
from runner_sdk._transport import Channels

__all__ = [
    "ActionOutcome",
    "Actions",
    "ArtifactFile",
    "Artifacts",
    "Events",
    "FollowUp",
    "History",
    "HostClient",
    "HostStream",
    "Knowledge",
    "ModelAnswer",
    "ModelStream",
    "Models",
    "Prompt",
    "ScopedState",
    "State",
    "StateValue",
    "Steering",
    "SteeringStream",
    "Storage",
    "ToolAnswer",
    "Tools",
]


class HostClient:
    """Makes calls to the host that a run came from.

    Every call can raise the subclasses of HostCallError. A call that the contract lets be repeated
    waits, up to 10 s and never beyond its deadline, when the host says that calls come too fast;
    else nothing is tried again.

    Attributes:
        remaining_seconds: Returns how long calls may still take; None: they have no deadline.
        models: Calls to models.
        tools: The run's tools.
        knowledge: The run's knowledge bases.
        history: The transcript of the run's conversation.
        events: The events of the run's conversation.
        artifacts: Bytes that the host keeps, by reference.
        state: Small JSON values that the host keeps.
        storage: Larger private values that the host keeps.
        prompt: The run's instructions.
        actions: Actions on the platform.
        steering: Follow-up input while the run is active.
    """

    __slots__ = (
        "_calls",
        "actions",
        "artifacts",
        "events",
        "history",
        "knowledge",
        "models",
        "prompt",
        "remaining_seconds",
        "state",
        "steering",
        "storage",
        "tools",
    )

    def __init__(
        self,
        *,
        access: HostAccess,
        channels: Channels,
        trace: RunTrace,
        remaining_seconds: Callable[[], float | None],
        tools: Sequence[ToolResource] = (),
    ) -> None:
        calls = self._calls = HostCalls(
            access=access, channels=channels, trace=trace, remaining_seconds=remaining_seconds
        )
        self.remaining_seconds = remaining_seconds
        self.models = Models(calls)
        self.tools = Tools(calls, tools)
        self.knowledge = Knowledge(calls)
        self.history = History(calls)
        self.events = Events(calls)
        self.artifacts = Artifacts(calls)
        self.state = State(calls)
        self.storage = Storage(calls)
        self.prompt = Prompt(calls)
        self.actions = Actions(calls)
        self.steering = Steering(calls)

    @property
    def host_id(self) -> str:
        """Which host the run came from."""
        return self._calls.access.host_id

    async def call(
        self,
        method: str,
        request: Message,
        *,
        timeout_seconds: float | None = None,
        metadata: CallMetadata | None = None,
    ) -> Any:
        """Makes any call of HostAPIService that is answered once.

        Args:
            method: The call's name, such as `GetPrompt`.
            request: Its request message.
            timeout_seconds: How long it may take, where that is less than the run may.
            metadata: gRPC metadata beside the SDK's own: printable ASCII by name, and bytes under
                names that end in `-bin`. Names are sent in lower case.

        Returns:
            Its response message.

        Raises:
            HostCallError: The host refused it, or could not be reached.
            InvalidArgument: gRPC cannot carry the metadata; the text names the entry.
            ValueError: There is no such call, or its answer is a stream.
        """
        return await self._calls.call(
            method, request, timeout_seconds=timeout_seconds, metadata=metadata
        )

    def stream(
        self,
        method: str,
        request: Message,
        *,
        timeout_seconds: float | None = None,
        metadata: CallMetadata | None = None,
    ) -> HostStream[Any]:
        """Makes a call of HostAPIService whose answer is a stream, and returns its messages.

        Args:
            method: The call's name, such as `StreamArtifact`.
            request: Its request message.
            timeout_seconds: How long all of it may take, where that is less than the run may.
            metadata: As for `call`.

        Raises:
            HostCallError: The host refused it, could not be reached, or broke off; raised where
                the stream is read.
            ValueError: There is no such call, or it is answered once.
        """
        return self._calls.stream(
            HostStream[Any], method, request, timeout_seconds=timeout_seconds, metadata=metadata
        )
