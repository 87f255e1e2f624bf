"""A run of the stand-in host, and what it may do."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from runmesh.v1 import result_pb2
from runmesh.v1.context_pb2 import RunContext
from runmesh.v1.host_api_pb2 import PullSteeringResponse
from runmesh.v1.manifest_pb2 import RunnerManifest
from runmesh.v1.types_pb2 import ArtifactRef

# What an event must have for a scope to be there: a field of the run's context.
_IDENTITIES: Mapping[int, str] = {
    result_pb2.STATE_SCOPE_CONVERSATION: "conversation",
    result_pb2.STATE_SCOPE_ACTOR: "actor",
    result_pb2.STATE_SCOPE_SUBJECT: "subject",
}


@dataclass(eq=False, slots=True)
class ActiveRun:
    """One run, from its start to its end.

    Attributes:
        manifest: What its runner asks for.
        context: What it was handed.
        serving: The calls that are being served for it.
        follow_ups: All follow-up input that came for it, in order.
        pulls: How often it began to pull that.
        changed: Set, and replaced, when one of these two changes.
        acknowledged: The ids that it acknowledged.
        streamed: The text of its message in progress.
        artifacts: Those it created since its last message.
        over: Whether it has ended.
    """

    manifest: RunnerManifest
    context: RunContext
    serving: set["asyncio.Task[None]"] = field(default_factory=set)
    follow_ups: list[PullSteeringResponse] = field(default_factory=list)
    pulls: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    acknowledged: list[str] = field(default_factory=list)
    streamed: str = ""
    artifacts: list[ArtifactRef] = field(default_factory=list)
    over: bool = False

    def has_identity(self, scope: int) -> bool:
        """Returns whether the event has what a scope of state is kept by."""
        identity = _IDENTITIES.get(scope)
        return identity is None or self.context.HasField(identity)  # type: ignore[arg-type]

    def tell(self) -> None:
        """Wakes whoever waits for a change."""
        self.changed.set()
        self.changed = asyncio.Event()

    def end(self) -> None:
        """Ends it, and the calls that are being served."""
        self.over = True
        for task in self.serving:
            task.cancel()
