"""Runners that attach to a host, kept running as a container's keeper would keep them."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml
from runmesh.admin.v1 import attach_tokens_pb2

from tests.integration.host.calls import Caller, calling
from tests.integration.host.host_process import HostProcess
from tests.integration.host.plugins import SCRIPTED
from tests.integration.host.waiting import wait_until

ROOT = Path(__file__).parents[3]
POLL_SECONDS = 0.05


async def new_token(caller: Caller, plugin_id: str, **fields: object) -> tuple[str, str]:
    """Makes an attach token; returns its id and the token itself."""
    request = attach_tokens_pb2.CreateAttachTokenRequest(plugin_id=plugin_id, **fields)  # type: ignore[arg-type]
    made = await caller.admin.CreateAttachToken(request, metadata=caller.metadata)
    return made.token.token_id, made.secret


class AttachedRunner:
    """A program that attaches, started again whenever it ends.

    Args:
        plugin_id: Its plugin.
        host: The host it attaches to.
        token: What with.
        command: What to start.
        folder: Where.
    """

    def __init__(
        self,
        *,
        plugin_id: str,
        host: HostProcess,
        token: str,
        command: Sequence[str],
        folder: Path = ROOT,
    ) -> None:
        self._command = list(command)
        self._folder = folder
        self._environment = os.environ | {
            "RUNMESH_ATTACH": host.addresses["grpc"],
            "RUNMESH_ATTACH_TOKEN": token,
            "RUNMESH_PLUGIN_ID": plugin_id,
        }
        self._is_closed = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._keeper = threading.Thread(target=self._keep, daemon=True)
        self._keeper.start()

    @property
    def pid(self) -> int:
        """Its process."""
        assert self._process is not None
        return self._process.pid

    def close(self) -> None:
        """Ends it, and starts it no more."""
        self._is_closed.set()
        self._keeper.join()

    def _keep(self) -> None:
        while not self._is_closed.is_set():
            self._process = subprocess.Popen(
                self._command, env=self._environment, cwd=self._folder, start_new_session=True
            )
            while self._process.poll() is None and not self._is_closed.is_set():
                self._is_closed.wait(POLL_SECONDS)
            # Whatever it started ends with it, however far it has got.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def bridged(*command: str) -> list[str]:
    """The command that attaches a program that listens."""
    return [sys.executable, "-m", "tests.integration.host.runners.bridge", *command]


def attach_scripted(host: HostProcess, *plugin_ids: str) -> list[AttachedRunner]:
    """Attaches the runner that does what the event says, once for each plugin."""
    command = bridged(sys.executable, str(SCRIPTED))
    return attach(host, dict.fromkeys(plugin_ids, (command, ROOT)))


def attach_folders(host: HostProcess, *folders: Path) -> list[AttachedRunner]:
    """Attaches the plugins in folders, which are none of the host's, with their own commands."""
    plugins = {}
    for folder in folders:
        manifest = yaml.safe_load((folder / "manifest.yaml").read_text())
        about = manifest["metadata"]
        plugins[f"{about['author']}/{about['name']}"] = (manifest["run"]["command"], folder)
    return attach(host, plugins)


def attach(
    host: HostProcess, plugins: Mapping[str, tuple[Sequence[str], Path]]
) -> list[AttachedRunner]:
    """Attaches plugins, each by a command in a folder; returns when the host lists them."""
    tokens = asyncio.run(_tokens(host, list(plugins)))
    runners = [
        AttachedRunner(plugin_id=plugin_id, host=host, token=token, command=command, folder=folder)
        for (plugin_id, (command, folder)), token in zip(plugins.items(), tokens, strict=True)
    ]
    wait_until(lambda: _are_serving(host, list(plugins)), seconds=30)
    return runners


async def _tokens(host: HostProcess, plugin_ids: Sequence[str]) -> list[str]:
    async with calling(host.addresses["grpc"], host.key) as caller:
        return [(await new_token(caller, each))[1] for each in plugin_ids]


def _are_serving(host: HostProcess, plugin_ids: Sequence[str]) -> bool:
    return all(f"{plugin_id} is serving" in host.log() for plugin_id in plugin_ids)
