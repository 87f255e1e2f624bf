"""Hosts that these tests talk to."""

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stores import Stores, open_stores
from tests.integration.host.calls import Caller, calling
from tests.integration.host.host_process import HostProcess
from tests.integration.host.plugins import write_scripted_plugin

ECHO = "plugin:runmesh/echo/default"
FAULTS = (
    "error",
    "exception",
    "crash",
    "no_terminal",
    "duplicate_sequence",
    "gap",
    "wrong_run_id",
    "oversized",
    "unknown_type",
    "after_terminal",
    "empty",
)

_AGENTS = """\
agents:
- {id: default, runner_id: "plugin:runmesh/echo/default"}
- {id: scripted, runner_id: "plugin:acme/scripted/default"}
- {id: polite, runner_id: "plugin:acme/scripted/polite"}
- {id: filing, runner_id: "plugin:acme/scripted/filing"}
- {id: other, runner_id: "plugin:acme/other/default"}
- {id: brief, runner_id: "plugin:acme/scripted/default", timeout: 1s}
- {id: endless, runner_id: "plugin:acme/scripted/default", timeout: 0s}
""" + "".join(
    f'- {{id: echo-{fault}, runner_id: "{ECHO}", config: {{failure: {fault}}}}}\n'
    for fault in FAULTS
)


@pytest.fixture(scope="session")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostProcess]:
    """A host that many tests share, with the echo runner and two scripted ones."""
    folder = tmp_path_factory.mktemp("host")
    for plugin_id in ("acme/scripted", "acme/other"):
        write_scripted_plugin(folder / "plugins", plugin_id)
    host = HostProcess(folder / "data", plugins=folder / "plugins", config=_AGENTS)
    try:
        yield host.start()
    finally:
        host.close()


@pytest.fixture
async def caller(host: HostProcess) -> AsyncIterator[Caller]:
    """An operator of the shared host."""
    async with calling(host.addresses["grpc"], host.key) as caller:
        yield caller


_NARROW = """\
agents:
- {id: default, runner_id: "plugin:runmesh/echo/default"}
- {id: scripted, runner_id: "plugin:acme/scripted/default"}
- {id: polite, runner_id: "plugin:acme/scripted/polite"}
- {id: nowhere, runner_id: "plugin:acme/nowhere/default"}
limits:
  active_runs: 3
  waiting_runs: 2
  instance_wait_seconds: 0.3
  interrupt_grace_seconds: 0.5
  reader_buffer_bytes: 262144
  reader_patience_seconds: 1.0
  bookmark_seconds: 0.2
  reserved_numbers: 64
"""


@pytest.fixture(scope="session")
def narrow_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostProcess]:
    """A host whose limits are so small that tests meet them."""
    folder = tmp_path_factory.mktemp("narrow")
    write_scripted_plugin(folder / "plugins")
    host = HostProcess(folder / "data", plugins=folder / "plugins", config=_NARROW)
    try:
        yield host.start()
    finally:
        host.close()


@pytest.fixture
async def narrow(narrow_host: HostProcess) -> AsyncIterator[Caller]:
    """An operator of the host with small limits."""
    async with calling(narrow_host.addresses["grpc"], narrow_host.key) as caller:
        yield caller


@pytest.fixture
async def stores(host: HostProcess) -> AsyncIterator[Stores]:
    """The database of the shared host, beside the host."""
    opened = await open_stores(host.database_url)
    yield opened
    await opened.close()


@pytest.fixture
def make_host(tmp_path: Path) -> Iterator[Callable[..., HostProcess]]:
    """Makes hosts for one test alone; what still runs at its end is stopped."""
    made: list[HostProcess] = []

    def make(name: str = "data", **settings: Any) -> HostProcess:
        made.append(HostProcess(tmp_path / name, **settings))
        return made[-1]

    yield make
    for host in made:
        host.close()
