"""What a run waits for before its runner is called: its session, an instance, its place.

A run never keeps from others what it cannot use. While it waits for its session or for an instance
it stands aside and holds none of the host's places. Whoever holds a place waits for nothing more;
who waits for a place may hold a slot of an instance: so nobody waits for each other in a circle.
"""

from __future__ import annotations

import asyncio
from datetime import datetime

from host_service.agents.agent import Agent
from host_service.registry.instance import Instance
from host_service.registry.records import InstanceState
from host_service.registry.run_stream import RunnerFault
from host_service.runs.admission import Place
from host_service.runs.outcome import RunFault
from host_service.runs.services import RunServices
from host_service.runs.sessions import Turn

_FIRST_PAUSE_SECONDS = 0.02
_LONGEST_PAUSE_SECONDS = 0.5


class Waiting:
    """The way of one run to an instance.

    Args:
        agent: Names the runner.
        session_key: The run's session.
        turn: Its turn in the session.
        place: Its place among the runs of this host.
        services: What every run works with.

    Attributes:
        turn_at: When it had its turn in the session, and a place on this host, for the first time;
            None before that.
    """

    def __init__(
        self, *, agent: Agent, session_key: str, turn: Turn, place: Place, services: RunServices
    ) -> None:
        self.turn = turn
        self.place = place
        self._agent = agent
        self._session_key = session_key
        self._registry = services.registry
        self._seconds = services.limits.instance_wait_seconds
        self._tried: set[Instance] = set()
        self._pause_seconds = _FIRST_PAUSE_SECONDS
        self._gives_up_at: float | None = None
        self._clock = services.clock
        self.turn_at: datetime | None = None

    def take_at_once(self) -> Instance | None:
        """Return an instance with a slot taken, if the run has to wait for nothing.

        Raises:
            Overloaded: It has to wait for an instance, and as many runs wait as may.
        """
        if not self.turn.has_come or not self.place.is_active:
            return None
        instance = self._pick()
        if instance is None:
            self.place.step_aside_if_room()
            return None
        instance.acquire()
        return instance

    async def refused(self, instance: Instance, fault: RunnerFault) -> None:
        """Take note that an instance did not begin the run; one that is busy is given a moment.

        A process is busy for longer than it seems: what a run left is cleaned up after its end, and
        other hosts may use it as well.

        Raises:
            RunFault: It was busy for too long.
        """
        if not fault.is_busy:
            self._tried.add(instance)
            return
        now = asyncio.get_running_loop().time()
        self._gives_up_at = self._gives_up_at or now + self._seconds
        if now >= self._gives_up_at:
            raise RunFault(fault.code, fault.message, retryable=True) from fault
        self.place.step_aside()
        await asyncio.sleep(self._pause_seconds)
        self._pause_seconds = min(2 * self._pause_seconds, _LONGEST_PAUSE_SECONDS)
        self.place.stand_in_line()

    async def take(self) -> Instance:
        """Return an instance with a slot taken, once it is the run's turn everywhere.

        Raises:
            RunFault: No instance serves the runner, and none will before long.
        """
        if not self.turn.has_come:
            await self.turn.come()
            self.place.stand_in_line()
        while True:
            if not self.place.is_aside:
                await self.place.turn()
                self.turn_at = self.turn_at or self._clock()
                instance = self._pick()
                if instance is not None:
                    instance.acquire()
                    return instance
                self.place.step_aside()
            instance = await self._slot()
            if instance is not None:
                return instance

    async def _slot(self) -> Instance | None:
        """Wait for a slot, and with it for a place; return None if the instance went meanwhile."""
        instance = await self._registry.wait_for(
            self._agent.runner_id,
            timeout_seconds=self._seconds,
            session_key=self._session(),
            exclude=self._tried,
        )
        if instance is None:
            raise RunFault(
                "runner.unavailable",
                f"no instance serves {self._agent.runner_id}{self._why_none()}",
                retryable=True,
            )
        instance.acquire()
        taken = False
        try:
            self.place.stand_in_line()
            await self.place.turn()
            taken = instance.state is InstanceState.SERVING
        finally:
            if not taken:
                instance.release()
        return instance if taken else None

    def leave(self) -> None:
        """Give up what is waited for, or held."""
        self.turn.leave()
        self.place.leave()

    def _pick(self) -> Instance | None:
        return self._registry.pick(
            self._agent.runner_id, session_key=self._session(), exclude=self._tried
        )

    def _session(self) -> str | None:
        """Return the session if its runs stay on one instance."""
        manifest = self._registry.manifest(self._agent.runner_id)
        stays = manifest is not None and manifest.capabilities.stateful_session
        return self._session_key if stays else None

    def _why_none(self) -> str:
        problems = {
            each.problem
            for each in self._registry.instances()
            if each.plugin_id == self._agent.plugin_id and each.problem
        }
        if problems:
            return f": {'; '.join(sorted(problems))}"
        return "; `runmesh runners list` shows which there are"
