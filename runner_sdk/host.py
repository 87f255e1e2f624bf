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
    """

    # The clients are made when they are asked for: most runs need few of them.
    __slots__ = ("_calls", "_tools", "remaining_seconds")

    def __init__(
        self,
        *,
        access: HostAccess,
        channels: Channels,
        trace: RunTrace,
        remaining_seconds: Callable[[], float | None],
        tools: Sequence[ToolResource] = (),
    ) -> None:
        self._calls = HostCalls(
            access=access, channels=channels, trace=trace, remaining_seconds=remaining_seconds
        )
        self._tools = tools
        self.remaining_seconds = remaining_seconds

    @property
    def models(self) -> Models:
        """Calls to models."""
        return Models(self._calls)

    @property
    def tools(self) -> Tools:
        """The run's tools."""
        return Tools(self._calls, self._tools)

    @property
    def knowledge(self) -> Knowledge:
        """The run's knowledge bases."""
        return Knowledge(self._calls)

    @property
    def history(self) -> History:
        """The transcript of the run's conversation."""
        return History(self._calls)

    @property
    def events(self) -> Events:
        """The events of the run's conversation."""
        return Events(self._calls)

    @property
    def artifacts(self) -> Artifacts:
        """Bytes that the host keeps, by reference."""
        return Artifacts(self._calls)

    @property
    def state(self) -> State:
        """Small JSON values that the host keeps."""
        return State(self._calls)

    @property
    def storage(self) -> Storage:
        """Larger private values that the host keeps."""
        return Storage(self._calls)

    @property
    def prompt(self) -> Prompt:
        """The run's instructions."""
        return Prompt(self._calls)

    @property
    def actions(self) -> Actions:
        """Actions on the platform."""
        return Actions(self._calls)

    @property
    def steering(self) -> Steering:
        """Follow-up input while the run is active."""
        return Steering(self._calls)

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
