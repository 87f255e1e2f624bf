"""How a runner is checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from host_service.certificates.files import DialFiles, ListenFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long the kit waits for what must come.

    Attributes:
        connect_seconds: For an address to be reachable.
        attach_seconds: For a runner to attach.
        start_seconds: For a process that the kit starts to be ready.
        answer_seconds: For the answer to a call other than `Run`.
        run_seconds: For a run to end.
        stop_seconds: For a run that was cancelled to be over in the runner.
        grace_seconds: What an interrupt grants, and what a process gets to end itself.
        health_seconds: For a health check while runs are under way.
    """

    connect_seconds: float = 5.0
    attach_seconds: float = 60.0
    start_seconds: float = 15.0
    answer_seconds: float = 5.0
    run_seconds: float = 15.0
    stop_seconds: float = 1.5
    grace_seconds: float = 5.0
    health_seconds: float = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HostListening:
    """Where the kit's two hosts listen for calls of a runner.

    Attributes:
        host: An address of this machine, or a name of one, which the runner is told.
        port: Of the first; the second has the next one. 0: each has any free one.
        tls: What they show; None: they have no TLS.
    """

    host: str = "127.0.0.1"
    port: int = 0
    tls: ListenFiles | None = None

    @property
    def is_default(self) -> bool:
        """Whether nobody has chosen anything."""
        return self == HostListening()

    def address(self, number: int) -> str:
        """Where one of them listens, 0 or 1."""
        shown = f"[{self.host}]" if ":" in self.host else self.host
        return f"{shown}:{self.port + number if self.port else 0}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the kit is told beside where the runner is.

    Attributes:
        expected_plugin: The plugin id that the process must name; empty: whichever it names.
        runner: Which of its runners to check, by the last part of its id; empty: the first by id.
        config: Configuration for its runs, over the defaults of its manifest.
        slow_config: Configuration with which a run lasts for half a minute or more; None: not
            known.
        echo: Whether it answers each text with the same text; None: as the kit knows the runner.
        only: Names of checks to make, or their groups, with `*` for anything; empty: all.
        skip: The same for checks to leave out.
        patience: How long to wait.
        tls: What connections to its address trust and show; None: they are not encrypted.
        listening: Where it calls the kit.
    """

    expected_plugin: str = ""
    runner: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)
    slow_config: Mapping[str, Any] | None = None
    echo: bool | None = None
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    patience: Patience = field(default_factory=Patience)
    tls: DialFiles | None = None
    listening: HostListening = field(default_factory=HostListening)

    def wants(self, name: str) -> bool:
        """Whether the check of this name is to be made."""
        chosen = not self.only or any(_matches(name, each) for each in self.only)
        return chosen and not any(_matches(name, each) for each in self.skip)

    def unmatched(self, names: Iterable[str]) -> list[str]:
        """Patterns that no name matches: most likely misspelt."""
        known = tuple(names)
        patterns = (*self.only, *self.skip)
        return [each for each in patterns if not any(_matches(name, each) for name in known)]


def _matches(name: str, pattern: str) -> bool:
    return pattern == name.partition(".")[0] or fnmatchcase(name, pattern)
