"""The values that the registry shares with the rest of the host."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from runmesh.v1 import manifest_pb2

#: Protocol versions that this host speaks, best first.
PROTOCOL_VERSIONS = ("1",)


class InstanceState(enum.StrEnum):
    """How an instance is doing; the names are those of the contract's `InstanceState`."""

    STARTING = "starting"
    SERVING = "serving"
    DRAINING = "draining"
    UNHEALTHY = "unhealthy"
    INCOMPATIBLE = "incompatible"
    REFUSED = "refused"
    FAILED = "failed"


class FoundBy(enum.StrEnum):
    """How an instance came to be known; the values are those of `RunnerInstance.found_by`."""

    FOLDER = "folder"
    STATIC = "static"
    ATTACHED = "attached"
    DNS = "dns"


@dataclass(frozen=True, slots=True)
class HostIdentity:
    """What this host says of itself in a handshake.

    Attributes:
        host_id: 1 to 255 bytes, the same for every start of this host.
        name: A name to show; may be empty.
        version: The host's version.
    """

    host_id: str
    name: str
    version: str


@dataclass(frozen=True, slots=True)
class ManifestFault:
    """A rule that a manifest breaks, and that cost the runner (or the plugin) its place.

    Attributes:
        plugin_id: `author/name`, or the folder's name where the id could not be read.
        runner_id: The runner id in the manifest as far as it could be read; empty for a plugin's
            own manifest.
        field: Which field, such as `config_schema[2].name`.
        rule: Which rule it breaks, and what was there.
    """

    plugin_id: str
    runner_id: str
    field: str
    rule: str

    def __str__(self) -> str:
        return f"{self.runner_id or self.plugin_id}: {self.field} {self.rule}"


@dataclass(frozen=True, slots=True)
class Introduction:
    """What an instance said of itself: its handshake and the manifests that passed the check.

    Attributes:
        instance_id: New for every start of the process.
        plugin_version: The plugin's version.
        sdk: SDK name, language and version in one text; empty when it named none.
        max_concurrent_runs: Runs it takes at once; 0: no limit of its own.
        manifests: By runner id. Nobody changes them.
        faults: What is wrong with the manifests that were left out.
    """

    instance_id: str
    plugin_version: str
    sdk: str
    max_concurrent_runs: int
    manifests: Mapping[str, manifest_pb2.RunnerManifest]
    faults: tuple[ManifestFault, ...] = ()


#: What is known of an instance before its handshake.
NOT_INTRODUCED = Introduction(
    instance_id="", plugin_version="", sdk="", max_concurrent_runs=0, manifests=MappingProxyType({})
)


def plugin_of(runner_id: str) -> str:
    """The plugin that a runner belongs to: `author/name` of `plugin:author/name/runner`.

    Empty when the text is no runner id.
    """
    prefix, _, rest = runner_id.partition(":")
    author, _, rest = rest.partition("/")
    name, separator, runner = rest.partition("/")
    whole = prefix == "plugin" and author and name and separator and runner and "/" not in runner
    return f"{author}/{name}" if whole else ""
