"""How a tool server is to be reached: its entry in the catalogue, and its secrets."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from host_service.catalogue.tool_server import ToolServer
from host_service.identity import new_id
from host_service.supervisor.child import Launch
from host_service.supervisor.manifest import Limits as ProcessLimits

# Where programs are, and how people write: no secret is ever there.
_GIVEN = ("PATH", "LANG", "TZ")
_GIVEN_PREFIX = "LC_"
_MARKER = "RUNMESH_TOOL_SERVER"
_HIDDEN = "***"
# A shorter secret is no secret, and to blot it out would blot out half of every text.
_LEAST_CHARACTERS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How a server is to be reached. Two that are equal are reached alike.

    Attributes:
        server: Its entry in the catalogue.
        secrets: Values of its variables and headers, by the names of the secrets.
        trouble: Why it cannot be reached at all; empty: nothing is in the way.
    """

    server: ToolServer
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    trouble: str = ""

    def headers(self) -> dict[str, str]:
        """Returns what every request to its address carries."""
        return {name: self.secrets[f"headers.{name}"] for name in self.server.headers}

    def launch(self, base: Path, *, host: Mapping[str, str] = os.environ) -> Launch:
        """Returns how its program is started; makes the folders that it has for itself.

        Args:
            base: Where tool servers have their folders.
            host: The host's environment, of which little is passed on.

        Raises:
            OSError: The folders cannot be made.
        """
        home, temporary = base / self.server.id / "home", base / self.server.id / "tmp"
        for folder in (base, base / self.server.id, home, temporary):
            folder.mkdir(mode=0o700, parents=folder == base, exist_ok=True)
        given = {
            name: value
            for name, value in host.items()
            if name in _GIVEN or name.startswith(_GIVEN_PREFIX)
        }
        own = {name: self.secrets[f"env.{name}"] for name in self.server.env}
        return Launch(
            plugin_id=f"tool server {self.server.id}",
            command=(self.server.command, *self.server.args),
            folder=home,
            environment={
                **given,
                "HOME": str(home),
                "TMPDIR": str(temporary),
                **own,
                _MARKER: f"{self.server.id}/{new_id()}",
            },
            limits=ProcessLimits(),
            marker=_MARKER,
            hidden=tuple(self._worth_hiding()),
            is_spoken_to=True,
        )

    def blot_out(self, text: str) -> str:
        """Returns a text without the server's secrets."""
        for secret in self._worth_hiding():
            text = text.replace(secret, _HIDDEN)
        return text

    def _worth_hiding(self) -> Iterable[str]:
        # The longest first: one may be part of another.
        values = {each.strip() for each in self.secrets.values()}
        # Of `Bearer TOKEN` the token alone is a secret as well.
        values |= {each.rpartition(" ")[2] for each in values}
        return sorted(
            (each for each in values if len(each) >= _LEAST_CHARACTERS), key=len, reverse=True
        )
