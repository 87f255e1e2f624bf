"""Runs a plugin for a moment as a host would, to see that it runs and what it serves.

The process is started by the supervisor that a host has, with the same environment, the same limits
and the same handshake: what fails there fails here, and says the same.
"""

import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict
from runmesh.v1.manifest_pb2 import RunnerManifest

from host_service import __version__
from host_service.packages.errors import PluginDisagrees, PluginDoesNotRun
from host_service.packages.packing import PluginFolder
from host_service.registry import HostIdentity, Instance, InstanceState, Registry
from host_service.supervisor import RestartPolicy, Supervisor
from host_service.supervisor.interpreter import FindInterpreter

# Above what the supervisor gives a process to become ready, so that its own words arrive.
_MARGIN_SECONDS = 10.0


async def try_plugin(
    plugin: PluginFolder,
    *,
    find_interpreter: FindInterpreter,
    restart: RestartPolicy | None = None,
) -> None:
    """Starts a plugin, shakes hands, compares what it serves with its files, and stops it.

    Args:
        plugin: The plugin; its environment is there.
        find_interpreter: Gives the Python that it runs in.
        restart: How long its process has to become ready, and to end.

    Raises:
        PluginDoesNotRun: It did not become ready; the text has the last that it wrote.
        PluginDisagrees: It serves other runners than its manifest files describe.
    """
    restart = restart or RestartPolicy()
    registry = Registry(identity=HostIdentity("trial", "runmesh trial", __version__))
    with tempfile.TemporaryDirectory(prefix="runmesh-trial-") as runtime_folder:
        supervisor = Supervisor(
            registry=registry,
            folders=[plugin.path],
            runtime_folder=Path(runtime_folder),
            restart=restart,
            find_interpreter=find_interpreter,
        )
        await supervisor.start()
        try:
            await supervisor.settled(restart.ready_timeout_seconds + _MARGIN_SECONDS)
            compare(plugin, _serving(plugin, registry))
        finally:
            await supervisor.stop(restart.stop_grace_seconds)
            await registry.close()


def compare(plugin: PluginFolder, instance: Instance) -> None:
    """Compares what a process serves with the manifest files beside its code.

    Raises:
        PluginDisagrees: They differ; the text names the first difference.
    """
    plugin_id = plugin.manifest.plugin_id
    for fault in instance.introduction.faults:
        raise PluginDisagrees(f"{plugin_id} serves a runner whose manifest breaks a rule: {fault}")
    version = instance.introduction.plugin_version
    if version != plugin.manifest.version:
        raise PluginDisagrees(
            f"{plugin_id} says in its handshake that it is {version!r}, and its manifest.yaml says "
            f"{plugin.manifest.version!r}"
        )
    if not plugin.manifest.components:
        return
    described = {each.id: each for each in plugin.runners.runners.values()}
    for difference in _differences(described, instance.manifests):
        raise PluginDisagrees(f"{plugin_id} does not serve what its files describe: {difference}")


def _serving(plugin: PluginFolder, registry: Registry) -> Instance:
    plugin_id = plugin.manifest.plugin_id
    for instance in registry.instances():
        if instance.state is InstanceState.SERVING:
            return instance
        raise PluginDoesNotRun(f"{plugin_id} does not run: {instance.reason or instance.state}")
    faults = "; ".join(str(fault) for fault in registry.faults())
    raise PluginDoesNotRun(f"{plugin_id} does not run: {faults or 'it was not started'}")


def _differences(
    described: Mapping[str, RunnerManifest], served: Mapping[str, RunnerManifest]
) -> Iterator[str]:
    for runner_id in sorted(described.keys() - served.keys()):
        yield f"{runner_id} is described and not served; is it in serve(...)?"
    for runner_id in sorted(served.keys() - described.keys()):
        yield f"{runner_id} is served and not described; is it in the manifest's components?"
    for runner_id in sorted(described.keys() & served.keys()):
        ours, theirs = _plain(described[runner_id]), _plain(served[runner_id])
        for path, file_says, process_says in _unlike(ours, theirs, ""):
            says = f"{_shown(file_says)} in the file and {_shown(process_says)} in ListRunners"
            yield f"{runner_id}: {path} is {says}"


def _plain(manifest: RunnerManifest) -> Any:
    return MessageToDict(manifest, preserving_proto_field_name=True)


def _unlike(ours: Any, theirs: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Yields each place where two values differ, deepest first named."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in sorted(ours.keys() | theirs.keys()):
            inside = f"{path}.{key}" if path else key
            yield from _unlike(ours.get(key), theirs.get(key), inside)
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for index, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            yield from _unlike(one, other, f"{path}[{index}]")
    elif ours != theirs and not (path.endswith("_json") and _same_json(ours, theirs)):
        yield path, ours, theirs


def _same_json(ours: Any, theirs: Any) -> bool:
    """Whether two texts are one JSON value: the writers need not agree on spaces."""
    try:
        return bool(json.loads(ours, parse_float=str) == json.loads(theirs, parse_float=str))
    except (TypeError, ValueError):
        return False


def _shown(value: Any) -> str:
    text = "nothing" if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:80]}..."
