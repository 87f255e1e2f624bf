"""One process of the plugin that somebody works on: attached to a host, ended with this one.

A Python plugin's is prepared ahead: started, with the SDK loaded, and held at a gate until it is
needed. Other programs start when they are needed. Both run under a guardian, as a host's plugins
do, so that nothing of them is left however this process ends.
"""

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from host_service.supervisor import Limits
from host_service.supervisor.child import Child, Exit, Launch
from host_service.supervisor.output import LineBudget

_GO = b"go\n"
_STANDBY_MODULE = "runner_sdk._standby"
# Somebody reads along: only a flood is cut short.
_LINES_AT_ONCE = 2_000
_LINES_A_SECOND = 1_000.0


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything that a process of the plugin is started with, but for what is its own.

    Attributes:
        plugin_id: `author/name`.
        folder: Where it runs.
        environment: Its environment, but for `RUNMESH_LISTEN`.
        limits: What it may use.
        python: The interpreter of a Python plugin; None for another program.
        module: The module of a Python plugin.
        command: Another program and its arguments.
    """

    plugin_id: str
    folder: Path
    environment: Mapping[str, str] = field(repr=False)
    limits: Limits
    python: Path | None = None
    module: str = ""
    command: tuple[str, ...] = ()

    @property
    def can_stand_by(self) -> bool:
        """Whether a process of it can be prepared ahead."""
        return self.python is not None


class DevelopmentProcess:
    """A process of the plugin, at its gate or running.

    Args:
        recipe: What it is started with.
        child: The process.
        gate: The FIFO at which it waits, and this side of it; None: it does not wait.
        socket: Where it may listen.
    """

    def __init__(self, recipe: Recipe, child: Child, gate: "_Gate | None", *, socket: Path) -> None:
        self.recipe = recipe
        self.socket = socket
        self._child = child
        self._gate = gate

    @classmethod
    async def prepare(cls, recipe: Recipe, *, place: Path) -> "DevelopmentProcess":
        """Starts a process of a Python plugin that waits until `go` is called.

        Args:
            recipe: What to start.
            place: A path, new for each process, beside which its socket and its gate can be.

        Raises:
            PluginFailed: It could not be started.
        """
        if recipe.python is None:
            raise ValueError("only a Python plugin can be prepared ahead")
        gate = _Gate(place.with_suffix(".gate"))
        words = (str(recipe.python), "-u", "-m", _STANDBY_MODULE, str(gate.path), recipe.module)
        try:
            return cls(recipe, await _start(recipe, words, place), gate, socket=place)
        except BaseException:
            gate.close()
            raise

    @classmethod
    async def start(cls, recipe: Recipe, *, place: Path) -> "DevelopmentProcess":
        """Starts a process at once.

        Raises:
            PluginFailed: It could not be started.
        """
        if recipe.python is None:
            child = await _start(recipe, recipe.command, place)
            return cls(recipe, child, None, socket=place)
        process = await cls.prepare(recipe, place=place)
        process.go()
        return process

    @property
    def has_ended(self) -> bool:
        """Whether the process is over; what it started may not be."""
        return self._child.ended.done()

    def go(self) -> None:
        """Opens the gate: it loads the plugin and serves."""
        if self._gate is not None:
            self._gate.open()

    async def ended(self) -> Exit:
        """Waits for its end, and returns how that was; all that it wrote has been shown."""
        await self._child.gone()
        return self._child.ended.result()

    async def stop(self, grace_seconds: float) -> None:
        """Ends it and all that it started."""
        try:
            await self._child.stop(grace_seconds)
        finally:
            if self._gate is not None:
                self._gate.close()


class _Gate:
    """A FIFO with this process as its writer from the start, so that its reader never misses it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        os.mkfifo(path, 0o600)
        # For both: to open only for writing would wait for the reader.
        self._descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def open(self) -> None:
        os.write(self._descriptor, _GO)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            with contextlib.suppress(FileNotFoundError):
                self.path.unlink()


async def _start(recipe: Recipe, command: tuple[str, ...], place: Path) -> Child:
    listen = f"unix:{place}"
    launch = Launch(
        plugin_id=recipe.plugin_id,
        command=command,
        folder=recipe.folder,
        environment={**recipe.environment, "RUNMESH_LISTEN": listen},
        limits=recipe.limits,
    )
    budget = LineBudget(at_once=_LINES_AT_ONCE, a_second=_LINES_A_SECOND)
    return await Child.start(launch, budget=budget)
