"""Which runners and instances the host knows, and how they are doing.

Who finds processes (the supervisor, static addresses ...) drives an instance through its life:
`add`, `bring_up`, `lose`, `remove`. Who runs agents asks: `pick`, `wait_for`, `manifest`. Between
them a task for each serving instance looks at its health. All of it happens on one event loop, so
that nothing needs a lock:

    supervisor, static runners --add, bring_up, lose--> instances <--pick, wait_for-- runs
                                                            ^
                       health watch, one task an instance --+--> changed: readiness, listings
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Coroutine, Iterable
from typing import Any

import grpc
from runmesh.v1 import discovery_pb2, manifest_pb2

from host_service.registry.attached import Attached
from host_service.registry.catalogue import Catalogue
from host_service.registry.channel import open_channel
from host_service.registry.dialled import Dialled
from host_service.registry.errors import NotAnswering, PluginIncompatible, PluginRefused
from host_service.registry.handshake import greeting, introduce, wait_until_serving
from host_service.registry.instance import Instance
from host_service.registry.liveness import CutOff, Finding, HealthPace, look_at
from host_service.registry.pulse import Pulse
from host_service.registry.reach import Reach
from host_service.registry.records import (
    FoundBy,
    HostIdentity,
    InstanceState,
    Introduction,
    ManifestFault,
    plugin_of,
)
from host_service.registry.selection import REMEMBERED_SESSIONS, Selection
from host_service.registry.slot_line import SlotLine, Ticket

_log = logging.getLogger("runmesh.registry")

# In these states an instance, or the one that replaces it, may take runs before long.
_MAY_SERVE = frozenset(
    {
        InstanceState.STARTING,
        InstanceState.SERVING,
        InstanceState.DRAINING,
        InstanceState.UNHEALTHY,
    }
)

_HELD = "an operator drains it"
_DISABLED = "its plugin is disabled"


class Registry:
    """All instances of all plugins, and the runners they serve.

    Args:
        identity: What the host says of itself in a handshake.
        health: How often instances are looked at.
        settings_of: Gives a plugin's settings as a JSON object, or None, for its handshake.
        remembered_sessions: Of how many sessions it is remembered where they were.
    """

    def __init__(
        self,
        *,
        identity: HostIdentity,
        health: HealthPace | None = None,
        settings_of: Callable[[str], str | None] = lambda _plugin_id: None,
        remembered_sessions: int = REMEMBERED_SESSIONS,
    ) -> None:
        self._identity = identity
        self._health = health or HealthPace()
        self._settings_of = settings_of
        self._instances: dict[str, Instance] = {}
        self._selection = Selection(remembered_sessions=remembered_sessions)
        self._catalogue = Catalogue()
        self._changed = Pulse()
        self._lines: defaultdict[str, SlotLine] = defaultdict(SlotLine)
        self._watches: dict[str, asyncio.Task[None]] = {}
        self._closing: set[asyncio.Task[None]] = set()
        # By token: instances that operators drain, whatever their health says.
        self._held: set[str] = set()
        # By token: instances that could not be told what is set for their plugin.
        self._untold: set[str] = set()
        self._disabled: frozenset[str] = frozenset()
        # By plugin: when to wait no more for one that was attached.
        self._expected: dict[str, asyncio.TimerHandle] = {}

    # What the host asks.

    def instances(self) -> tuple[Instance, ...]:
        """Every instance, those that are not called included, by plugin and age."""
        return tuple(sorted(self._instances.values(), key=lambda each: each.plugin_id))

    def runners(self) -> tuple[manifest_pb2.RunnerManifest, ...]:
        """The manifest of every runner that is known, by id, whether or not it is served now."""
        return self._catalogue.manifests()

    def manifest(self, runner_id: str) -> manifest_pb2.RunnerManifest | None:
        """The runner's manifest as its newest instance declared it; None for an unknown runner.

        It stays while the plugin is known, so that an agent can be saved during a restart.
        """
        return self._catalogue.manifest(runner_id)

    def faults(self) -> tuple[ManifestFault, ...]:
        """What is wrong with manifests that were left out, plugins' own and runners'."""
        return self._catalogue.faults(self._instances.values())

    def find(self, instance_id: str) -> Instance | None:
        """The instance that gave itself this id, the newest that has not been lost."""
        found = [
            each
            for each in self._instances.values()
            if each.instance_id == instance_id and not each.lost.is_set()
        ]
        return found[-1] if found else None

    def find_by_token(self, token: str) -> Instance | None:
        """The instance that a token names, while that start of its process is not lost."""
        instance = self._instances.get(token)
        return None if instance is None or instance.lost.is_set() else instance

    def pick(
        self,
        runner_id: str,
        *,
        session_key: str | None = None,
        exclude: Collection[Instance] = frozenset(),
    ) -> Instance | None:
        """Chooses an instance that takes one more run of the runner now, the least busy first.

        The caller takes the slot with `Instance.acquire` before it awaits anything. While a slot
        is promised to somebody who waits for one, nobody else gets any: see `wait_for`.

        Args:
            runner_id: The runner.
            session_key: Set for a stateful session: its runs stay on the instance that had the last
                one while that serves, and wait for a slot there.
            exclude: Instances that were tried and could not be reached.
        """
        if self._lines[plugin_of(runner_id)].is_promised:
            return None
        return self._choose(runner_id, session_key, exclude)

    async def wait_for(
        self,
        runner_id: str,
        *,
        timeout_seconds: float = 10.0,
        session_key: str | None = None,
        exclude: Collection[Instance] = frozenset(),
    ) -> Instance | None:
        """Like `pick`, but waits for what may come: a slot, or an instance that is restarted.

        Slots are given in the order in which their takers came. Waiting for a slot is unbounded
        (the run's deadline is the caller's); waiting while nothing serves takes at most
        `timeout_seconds`. None as soon as there is nothing to wait for.
        """
        line = self._lines[plugin_of(runner_id)]
        may_look = not line.is_promised
        ticket = line.join()
        gives_up_at: float | None = None
        now = asyncio.get_running_loop().time
        try:
            while True:
                chosen = self._choose(runner_id, session_key, exclude) if may_look else None
                if chosen is not None:
                    return chosen
                if self._is_full(runner_id, exclude):
                    gives_up_at = None
                elif not self._may_come(runner_id):
                    return None
                elif gives_up_at is None:
                    gives_up_at = now() + timeout_seconds
                self._pass_on(line, ticket, runner_id)
                try:
                    async with asyncio.timeout_at(gives_up_at):
                        await line.news(ticket)
                except TimeoutError:
                    return None
                may_look = True
                line.look(ticket)
        finally:
            # What this one was told, and whatever slot is left, is the next one's.
            self._pass_on(line, ticket, runner_id)
            line.leave(ticket)

    async def changed(self) -> None:
        """Returns at the next change of any instance, runner or fault."""
        await self._changed.wait()

    # What those who find processes tell.

    def add(
        self,
        *,
        plugin_id: str,
        found_by: FoundBy,
        address: str,
        restarts: int = 0,
        replaces: Instance | None = None,
        credentials: grpc.ChannelCredentials | None = None,
        tls_name: str = "",
    ) -> Instance:
        """Lists a new instance as STARTING.

        Args:
            plugin_id: The plugin it is found as.
            found_by: How it was found.
            address: Its gRPC target.
            restarts: How often that process was started before.
            replaces: The instance of the earlier start, which leaves the list.
            credentials: What the connection to it trusts and shows; None: it is not encrypted.
            tls_name: What its certificate must be for; empty: what the address names.
        """
        if replaces is not None:
            self._drop(replaces)

        def dial() -> grpc.aio.Channel:
            return open_channel(address, credentials=credentials, tls_name=tls_name)

        instance = Instance(
            plugin_id=plugin_id,
            found_by=found_by,
            address=address,
            reach=Dialled(dial),
            restarts=restarts,
            on_release=self._slot_freed,
        )
        self._instances[instance.instance_token] = instance
        self._tell(plugin_id)
        return instance

    def process_started(self, instance: Instance, process_id: int) -> None:
        """The host has started the instance's process, which is not ready yet."""
        instance.process_id = process_id
        self._tell(instance.plugin_id)

    def attach(
        self,
        *,
        plugin_id: str,
        introduction: Introduction,
        reach: Reach,
        development: bool = False,
        host_address: str = "",
    ) -> Instance:
        """Lists an instance that dialled the host, and lets it take runs.

        Args:
            plugin_id: The plugin whose token it showed.
            introduction: What it said of itself.
            reach: The way to it.
            development: Whether a developer works on it.
            host_address: Where it reaches the host, in its own words.
        """
        instance = Instance(
            plugin_id=plugin_id,
            found_by=FoundBy.ATTACHED,
            address="",
            reach=reach,
            restarts=0,
            on_release=self._slot_freed,
            development=development,
            host_address=host_address,
        )
        self._instances[instance.instance_token] = instance
        self._expect_no_more(plugin_id)
        instance.introduce(introduction)
        self._learn(plugin_id)
        self.mark(instance, InstanceState.SERVING)
        return instance

    def refuse(
        self, *, plugin_id: str, state: InstanceState, reason: str, replaces: Instance | None = None
    ) -> Instance:
        """Lists an instance that wanted to attach and must not, so that somebody sees why.

        Args:
            plugin_id: The plugin whose token it showed.
            state: REFUSED or INCOMPATIBLE.
            reason: Why it must not.
            replaces: What is listed of an earlier attempt, which leaves the list.
        """
        if replaces is not None:
            self._drop(replaces)
        instance = Instance(
            plugin_id=plugin_id,
            found_by=FoundBy.ATTACHED,
            address="",
            reach=Attached(initial_credit=0),
            restarts=0,
            on_release=self._slot_freed,
        )
        self._instances[instance.instance_token] = instance
        self.lose(instance, state, reason)
        return instance

    def detach(self, instance: Instance, *, expected_seconds: float = 0.0) -> None:
        """Takes an attached instance off the list: its stream has ended, and its runs with it.

        Args:
            instance: The instance.
            expected_seconds: How long it is expected to come back: until then runs may wait for it,
                and its runners stay known.
        """
        plugin_id = instance.plugin_id
        self._drop(instance)
        _log.info("%s is not attached any more", plugin_id)
        if expected_seconds > 0:
            self._expect_no_more(plugin_id)
            self._expected[plugin_id] = asyncio.get_running_loop().call_later(
                expected_seconds, self._give_up, plugin_id
            )
            self._learn(plugin_id)
            self._tell(plugin_id)
        else:
            self._give_up(plugin_id)

    def greeting(self, plugin_id: str) -> discovery_pb2.HandshakeRequest:
        """What the host says of itself to a plugin, with the plugin's settings."""
        return greeting(self._identity, self._settings_of(plugin_id))

    async def bring_up(self, instance: Instance, *, timeout_seconds: float = 15.0) -> None:
        """Waits until the process serves, shakes hands with it, and lets it take runs.

        Raises:
            HandshakeFailed: It did not become ready in time, or must not be called. The instance's
                state is left to the caller, who knows whether there will be another try.
        """
        stage = f"its health check did not say SERVING at {instance.address}"

        def note(problem: str) -> None:
            waits = instance.state in {InstanceState.STARTING, InstanceState.UNHEALTHY}
            self.mark(instance, instance.state if waits else InstanceState.UNHEALTHY, problem)

        try:
            async with asyncio.timeout(timeout_seconds):
                await wait_until_serving(instance.channel, note)
                stage = "it did not answer its handshake"
                introduction = await introduce(
                    instance.channel,
                    identity=self._identity,
                    plugin_id=instance.plugin_id,
                    settings_json=self._settings_of(instance.plugin_id),
                )
        except TimeoutError:
            problem = f" ({instance.reason})" if instance.reason else ""
            raise NotAnswering(f"{stage} within {timeout_seconds:g} s{problem}") from None
        instance.introduce(introduction)
        self._learn(instance.plugin_id)
        self.mark(instance, InstanceState.SERVING)
        token = instance.instance_token
        self._watches[token] = asyncio.create_task(
            self._watch(instance), name=f"health of {instance.plugin_id}"
        )

    def mark(self, instance: Instance, state: InstanceState, reason: str = "") -> None:
        """Says how an instance is doing; `reason` says why it does not serve."""
        before = instance.state
        if state is InstanceState.SERVING and (held := self._why_held(instance)):
            state, reason = InstanceState.DRAINING, held
        if instance.instance_token not in self._instances or not instance.enter(state, reason):
            return
        level = logging.INFO if state in _MAY_SERVE else logging.WARNING
        shown = f": {' | '.join(reason.splitlines())}" if reason else ""
        _log.log(
            level if state is not before else logging.DEBUG,
            "%s is %s%s",
            instance.plugin_id,
            state,
            shown,
        )
        self._tell(instance.plugin_id)

    def drain(self, instance: Instance, reason: str) -> None:
        """It finishes what it has and takes no more, whatever its health check says from now on."""
        self._stop_watching(instance)
        self.mark(instance, InstanceState.DRAINING, reason)

    def hold(self, instance: Instance) -> None:
        """An operator drains it: it finishes what it has and takes no more until it is resumed."""
        self._held.add(instance.instance_token)
        if instance.state is InstanceState.SERVING:
            self.mark(instance, InstanceState.SERVING)

    def resume(self, instance: Instance) -> bool:
        """An operator drains it no more; returns whether it takes runs."""
        self._held.discard(instance.instance_token)
        if instance.reason == _HELD:
            self.mark(instance, InstanceState.SERVING)
        return instance.state is InstanceState.SERVING

    def set_disabled(self, plugin_ids: Iterable[str]) -> None:
        """Instances of these plugins get no runs from now on, and those of all others do."""
        before, self._disabled = self._disabled, frozenset(plugin_ids)
        for plugin_id in before ^ self._disabled:
            for instance in self._of_plugin(plugin_id):
                if instance.state is InstanceState.SERVING or instance.reason == _DISABLED:
                    self.mark(instance, InstanceState.SERVING)

    async def introduce_again(self, plugin_id: str) -> None:
        """Shakes hands again with instances that others run: what is set for them has changed."""
        await asyncio.gather(
            *(
                self._introduce_again(instance)
                for instance in self._of_plugin(plugin_id)
                if instance.found_by in {FoundBy.STATIC, FoundBy.DNS}
                and instance.instance_id
                and not instance.lost.is_set()
            )
        )

    async def _introduce_again(self, instance: Instance) -> None:
        try:
            async with asyncio.timeout(self._health.patience_seconds):
                introduction = await introduce(
                    instance.channel,
                    identity=self._identity,
                    plugin_id=instance.plugin_id,
                    settings_json=self._settings_of(instance.plugin_id),
                )
        except (PluginRefused, PluginIncompatible) as error:
            self.lose(instance, InstanceState.REFUSED, str(error))
            instance.unreachable.set()
        except (NotAnswering, TimeoutError, grpc.aio.UsageError) as error:
            # It is told when it answers again, or is dialled again.
            self._untold.add(instance.instance_token)
            _log.warning(
                "%s was not told its settings: %s", instance.plugin_id, str(error) or "no answer"
            )
        else:
            self._untold.discard(instance.instance_token)
            instance.introduce(introduction)
            self._learn(instance.plugin_id)
            self._tell(instance.plugin_id)

    def lose(self, instance: Instance, state: InstanceState, reason: str) -> None:
        """The process is gone for good: its runs end, and it stays listed with the reason."""
        self._end(instance)
        self.mark(instance, state, reason)

    def remove(self, instance: Instance) -> None:
        """Takes an instance off the list; a plugin's runners go with its last instance."""
        self._drop(instance)
        self._learn(instance.plugin_id)
        self._forget_if_gone(instance.plugin_id)
        self._tell(instance.plugin_id)

    def report_faults(self, source: str, faults: Iterable[ManifestFault]) -> None:
        """Lists what is wrong with a plugin's own manifest; replaces the last report."""
        if self._catalogue.report_faults(source, faults):
            self._changed.beat()

    async def close(self) -> None:
        """Forgets all instances and closes their connections, the calls on them included."""
        for instance in self.instances():
            self.remove(instance)
        for plugin_id in list(self._expected):
            self._expect_no_more(plugin_id)
        tasks = [*self._watches.values(), *self._closing]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # Within.

    def _learn(self, plugin_id: str) -> None:
        """Knows a plugin's runners as those of its instances declare them that are there."""
        # What a developer changes is what counts, whenever the others came.
        instances = sorted(self._of_plugin(plugin_id), key=lambda each: each.development)
        # While none is there, what was declared stays: see `manifest`.
        if any(each.manifests and not each.lost.is_set() for each in instances):
            self._catalogue.learn(plugin_id, instances)

    def _forget_if_gone(self, plugin_id: str) -> None:
        if not self._of_plugin(plugin_id) and plugin_id not in self._expected:
            self._catalogue.forget(plugin_id)

    def _give_up(self, plugin_id: str) -> None:
        self._expect_no_more(plugin_id)
        self._learn(plugin_id)
        self._forget_if_gone(plugin_id)
        self._tell(plugin_id)

    def _expect_no_more(self, plugin_id: str) -> None:
        timer = self._expected.pop(plugin_id, None)
        if timer is not None:
            timer.cancel()

    def _of_plugin(self, plugin_id: str) -> list[Instance]:
        return [each for each in self._instances.values() if each.plugin_id == plugin_id]

    def _choose(
        self, runner_id: str, session_key: str | None, exclude: Collection[Instance]
    ) -> Instance | None:
        return self._selection.choose(
            self._of_plugin(plugin_of(runner_id)),
            runner_id=runner_id,
            session_key=session_key,
            exclude=exclude,
        )

    def _why_held(self, instance: Instance) -> str:
        """Why it gets no runs although it serves; empty for no reason."""
        if instance.plugin_id in self._disabled:
            return _DISABLED
        return _HELD if instance.instance_token in self._held else ""

    def _pass_on(self, line: SlotLine, ticket: Ticket, runner_id: str) -> None:
        """Let the next one look, as long as there is something to be had."""
        if any(instance.takes_runs for instance in self._of_plugin(plugin_of(runner_id))):
            line.tell_next(after=ticket)

    def _is_full(self, runner_id: str, exclude: Collection[Instance]) -> bool:
        return any(
            instance.state is InstanceState.SERVING
            and runner_id in instance.manifests
            and instance not in exclude
            for instance in self._of_plugin(plugin_of(runner_id))
        )

    def _may_come(self, runner_id: str) -> bool:
        if plugin_of(runner_id) in self._disabled:
            return False
        return plugin_of(runner_id) in self._expected or any(
            instance.state in _MAY_SERVE
            # One that serves without this runner will not learn it; one that was excluded may be
            # replaced.
            and (instance.state is not InstanceState.SERVING or runner_id in instance.manifests)
            for instance in self._of_plugin(plugin_of(runner_id))
        )

    def _slot_freed(self, instance: Instance) -> None:
        self._lines[instance.plugin_id].tell_next()

    def _tell(self, plugin_id: str) -> None:
        self._lines[plugin_id].tell_all()
        self._changed.beat()

    def _drop(self, instance: Instance) -> None:
        self._end(instance)
        self._instances.pop(instance.instance_token, None)
        self._held.discard(instance.instance_token)
        self._untold.discard(instance.instance_token)

    def _end(self, instance: Instance) -> None:
        if instance.lost.is_set():
            return
        instance.lost.set()
        self._selection.forget(instance)
        # The number may be another process's before long.
        instance.process_id = None
        self._stop_watching(instance)
        self._begin_closing(_close_when_idle(instance), instance)

    def _begin_closing(self, work: Coroutine[Any, Any, None], instance: Instance) -> None:
        task = asyncio.create_task(work, name=f"close {instance}")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def _stop_watching(self, instance: Instance) -> None:
        watch = self._watches.pop(instance.instance_token, None)
        if watch is not None:
            watch.cancel()

    async def _watch(self, instance: Instance) -> None:
        cut_off = CutOff(self._health)
        while not instance.unreachable.is_set():
            await asyncio.sleep(self._health.pause_seconds)
            finding = await look_at(instance.channel, self._health)
            if finding is Finding.SERVING:
                if instance.instance_token in self._untold:
                    await self._introduce_again(instance)
                if not instance.lost.is_set():
                    self.mark(instance, InstanceState.SERVING)
            elif finding is Finding.DRAINING:
                self.mark(instance, InstanceState.DRAINING, finding.value)
            elif finding is Finding.SILENT:
                reason = f"{finding.value} within {self._health.patience_seconds:g} s"
                self.mark(instance, InstanceState.UNHEALTHY, reason)
                if await cut_off.is_so(instance.address, instance.channel, instance.dial):
                    self._cut(instance)
                    return
            else:
                # Not lost yet: a process that has closed its listener may still finish the runs it
                # has.
                self.mark(instance, InstanceState.UNHEALTHY, finding.value)
                instance.unreachable.set()

    def _cut(self, instance: Instance) -> None:
        """The connection is dead without an end: what waits on it would wait for ever."""
        self.lose(instance, InstanceState.UNHEALTHY, "its connection was cut on the way")
        instance.unreachable.set()
        self._begin_closing(instance.reach.close(), instance)


async def _close_when_idle(instance: Instance) -> None:
    # Closing cancels the calls on a connection; the runs on it shall end by what really happened to
    # them.
    try:
        await instance.idle.wait()
    finally:
        await instance.reach.close()
