"""What `runmesh doctor` looks at of the environments of Python plugins."""

from collections.abc import Sequence
from pathlib import Path

from host_service.cli.findings import Finding, Findings, fine, problem, warning
from host_service.environments import EnvironmentShelf, KeptEnvironment
from host_service.environments.needs import Need, needs_of, plugin_places
from host_service.environments.shelf import tree_bytes

_AREA = "environments"
_MEBIBYTE = 1024 * 1024


def check_environments(data: Path, more: Sequence[Path]) -> Findings:
    """Whether every Python plugin can be started in its environment, and which nobody needs."""
    shelf = EnvironmentShelf(data)
    for need in needs_of(shelf, plugin_places(data, more)):
        found = _check_need(need)
        if found is not None:
            yield found
    kept = shelf.kept()
    if not kept:
        return
    yield fine(_AREA, f"{_told(kept)}, and wheels of {_size(tree_bytes(shelf.wheels))}")
    needs = needs_of(shelf, plugin_places(data, more, versions=True))
    needed = {need.environment.key for need in needs if need.environment is not None}
    left = [each for each in kept if each.environment.key not in needed and not each.in_use]
    if left:
        told = f"{_told(left)}, are needed by no plugin that is here"
        yield warning(_AREA, told, "'runmesh plugins clean' removes them")


def _check_need(need: Need) -> Finding | None:
    if need.environment is None:
        told = f"{need.plugin_id} can have none: {need.problem}"
        return problem(_AREA, told, "mend what it asks for")
    if not need.environment.is_ready:
        told = f"that of {need.plugin_id} is not built, or was built for another version"
        return problem(_AREA, told, f"'runmesh plugins build {need.folder}'")
    return None


def _told(kept: Sequence[KeptEnvironment]) -> str:
    return f"{len(kept)} of {_size(sum(each.size_bytes for each in kept))}"


def _size(size_bytes: int) -> str:
    return f"{size_bytes / _MEBIBYTE:.1f} MiB"
