"""How a plugin's process is started, as its manifest says: by the host, and by who tries it out."""

from collections.abc import Mapping
from types import MappingProxyType

from host_service.supervisor.cgroups import DelegatedCgroup
from host_service.supervisor.child import Launch
from host_service.supervisor.environment import ChildPolicy, PrivateFolders, child_environment
from host_service.supervisor.interpreter import HOSTS_INTERPRETER, FindInterpreter, Interpreter
from host_service.supervisor.manifest import PluginManifest, PythonModule

_NOTHING: Mapping[str, str] = MappingProxyType({})


def interpreter_of(manifest: PluginManifest, find_interpreter: FindInterpreter) -> Interpreter:
    """Which Python a plugin needs. Blocks on the file system.

    Raises:
        EnvironmentMissing: It cannot be given.
    """
    if isinstance(manifest.run, PythonModule):
        return find_interpreter(manifest.folder)
    return HOSTS_INTERPRETER


def launch_of(
    manifest: PluginManifest,
    *,
    listen: str,
    folders: PrivateFolders,
    policy: ChildPolicy,
    interpreter: Interpreter,
    further: Mapping[str, str] = _NOTHING,
    cgroups: DelegatedCgroup | None = None,
) -> Launch:
    """What is started for a plugin.

    Args:
        manifest: The plugin.
        listen: The address it shall serve.
        folders: Its home and its folder for temporary files.
        policy: What it may have.
        interpreter: The Python for it.
        further: Variables of its environment beside the usual ones.
        cgroups: Where groups hold its limits; None: they are held without.
    """
    run = manifest.run
    python = (str(interpreter.python), "-u", "-m")
    environment = child_environment(manifest, listen=listen, folders=folders, policy=policy)
    return Launch(
        plugin_id=manifest.plugin_id,
        command=(*python, run.module) if isinstance(run, PythonModule) else run.words,
        folder=manifest.folder,
        environment=interpreter.complete({**environment, **further}),
        limits=manifest.limits.within(policy.limits),
        cgroups=cgroups,
    )
