"""One process of a plugin, from its start to its end."""

import asyncio
import secrets
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

import grpc.aio
from runmesh.v1 import manifest_pb2, run_pb2, run_pb2_grpc

from host_service.registry.dialled import Dialled
from host_service.registry.errors import SlotUnavailable
from host_service.registry.reach import Reach
from host_service.registry.records import NOT_INTRODUCED, FoundBy, InstanceState, Introduction
from host_service.registry.run_stream import RunStream

# What a runner says of itself may be of any length, and stands in errors of runs.
_LONGEST_PROBLEM = 300

INSTANCE_TOKEN_PREFIX = "rmi_"  # noqa: S105 - it marks the tokens, it is none


class Instance:
    """A process that serves, or should serve, a plugin's runners.

    It stands for one start of the process: a plugin that is started again becomes a new instance
        with a new token, so that what held the old one sees it `lost` and nothing of the new one.
        Only the registry changes its state.

    Attributes:
        plugin_id: The plugin it was found as, `author/name`.
        found_by: How it was found.
        address: Its gRPC target; empty for an attached one.
        process_id: The process, while it runs, when the host started it; else None.
        restarts: How often the process was started again before this start.
        instance_token: Secret. Names this start of this instance in calls to HostAPI.
        reach: The way to it.
        development: Whether a developer works on it: while it serves, it takes the runs of the
            plugin's others.
        host_address: Where it reaches the host, in its own words; empty where it said none.
        lost: Set once the process is gone for good. Runs on it end as crashed; it never serves
            again.
        unreachable: Set once nobody listens at its address: no new run can reach it, while those it
            has may go on.
        idle: Set while no run is on it.
        last_picked: For the registry: the number of the pick that chose it last.
    """

    __slots__ = (
        "_active_runs",
        "_introduction",
        "_on_release",
        "_reason",
        "_since",
        "_state",
        "address",
        "development",
        "found_by",
        "host_address",
        "idle",
        "instance_token",
        "last_picked",
        "lost",
        "plugin_id",
        "process_id",
        "reach",
        "restarts",
        "unreachable",
    )

    def __init__(
        self,
        *,
        plugin_id: str,
        found_by: FoundBy,
        address: str,
        reach: Reach,
        restarts: int,
        on_release: Callable[["Instance"], None],
        development: bool = False,
        host_address: str = "",
    ) -> None:
        self.plugin_id = plugin_id
        self.found_by = found_by
        self.address = address
        self.process_id: int | None = None
        self.restarts = restarts
        self.reach = reach
        self.development = development
        self.host_address = host_address
        self.instance_token = INSTANCE_TOKEN_PREFIX + secrets.token_urlsafe(32)
        self.lost = asyncio.Event()
        self.unreachable = asyncio.Event()
        self.idle = asyncio.Event()
        self.idle.set()
        self.last_picked = 0
        self._active_runs = 0
        self._introduction = NOT_INTRODUCED
        self._state = InstanceState.STARTING
        self._reason = ""
        self._since = datetime.now(UTC)
        self._on_release = on_release

    def __repr__(self) -> str:
        return f"<Instance {self.plugin_id} {self._state} at {self.address}>"

    @property
    def channel(self) -> grpc.aio.Channel:
        """The connection to one that is dialled.

        Raises:
            TypeError: It is reached in another way.
        """
        return self._dialled.channel

    @property
    def dial(self) -> Callable[[], grpc.aio.Channel]:
        """Opens another connection to one that is dialled.

        Raises:
            TypeError: It is reached in another way.
        """
        return self._dialled.dial

    @property
    def run_stub(self) -> run_pb2_grpc.RunServiceStub:
        """`RunService` on the connection to one that is dialled.

        Raises:
            TypeError: It is reached in another way.
        """
        return self._dialled.run_stub

    @property
    def _dialled(self) -> Dialled:
        if not isinstance(self.reach, Dialled):
            raise TypeError(f"{self} is not dialled")
        return self.reach

    def open_run(
        self,
        request: run_pb2.RunRequest,
        *,
        timeout_seconds: float | None,
        metadata: tuple[tuple[str, str], ...],
    ) -> RunStream:
        """Give it a run; returns at once.

        Args:
            request: The run.
            timeout_seconds: How long it may take; None: no limit.
            metadata: Trace context for the runner.
        """
        return self.reach.open_run(
            self, request, timeout_seconds=timeout_seconds, metadata=metadata
        )

    @property
    def state(self) -> InstanceState:
        """How it is doing."""
        return self._state

    @property
    def reason(self) -> str:
        """Why it is not serving, and the end of what it printed; empty while it serves."""
        return self._reason

    @property
    def problem(self) -> str:
        """The same in one line without what it printed, which may hold paths and secrets."""
        # Whoever adds output to a reason does so on lines of its own.
        line = self._reason.partition("\n")[0].removesuffix("; the last it wrote:")
        return line if len(line) <= _LONGEST_PROBLEM else f"{line[:_LONGEST_PROBLEM]}..."

    @property
    def since(self) -> datetime:
        """Since when it is in this state."""
        return self._since

    @property
    def instance_id(self) -> str:
        """The id it gave itself for this start; empty before its handshake."""
        return self._introduction.instance_id

    @property
    def plugin_version(self) -> str:
        """The plugin's version; empty before its handshake."""
        return self._introduction.plugin_version

    @property
    def sdk(self) -> str:
        """SDK name, language and version in one text; empty when unknown."""
        return self._introduction.sdk

    @property
    def max_concurrent_runs(self) -> int:
        """Runs it takes at once; 0: no limit of its own."""
        return self._introduction.max_concurrent_runs

    @property
    def manifests(self) -> Mapping[str, manifest_pb2.RunnerManifest]:
        """The runners it serves, by id. Nobody changes them."""
        return self._introduction.manifests

    @property
    def introduction(self) -> Introduction:
        """All that it said of itself."""
        return self._introduction

    @property
    def active_runs(self) -> int:
        """Runs it works on now."""
        return self._active_runs

    @property
    def has_free_slot(self) -> bool:
        """Whether it would take one more run, were it serving."""
        return self.max_concurrent_runs == 0 or self._active_runs < self.max_concurrent_runs

    @property
    def takes_runs(self) -> bool:
        """Whether it serves and has a free slot."""
        return self._state is InstanceState.SERVING and self.has_free_slot

    def acquire(self) -> None:
        """Takes a slot for a run; give it back with `release`.

        Raises:
            SlotUnavailable: It is not serving, or it has as many runs as it takes.
        """
        if not self.takes_runs:
            raise SlotUnavailable(
                f"{self.plugin_id} is {self._state} with {self._active_runs} of "
                f"{self.max_concurrent_runs or 'any number of'} runs"
            )
        self._active_runs += 1
        self.idle.clear()

    def release(self) -> None:
        """Gives back the slot of a run that has ended, however it ended."""
        if self._active_runs == 0:
            raise ValueError(f"{self.plugin_id}: release without acquire")
        self._active_runs -= 1
        if self._active_runs == 0:
            self.idle.set()
        self._on_release(self)

    def enter(self, state: InstanceState, reason: str) -> bool:
        """For the registry alone: changes the state, and tells whether that is news."""
        if (state, reason) == (self._state, self._reason):
            return False
        if state is not self._state:
            self._since = datetime.now(UTC)
        self._state, self._reason = state, reason
        return True

    def introduce(self, introduction: Introduction) -> None:
        """For the registry alone: keeps what the instance said of itself."""
        self._introduction = introduction
