"""Hosts that these tests talk to."""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from stores import Stores, open_stores
from tests.integration.host.attached import AttachedRunner, attach_scripted
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


# What these test must be the same however a runner is reached.
_OVER_BOTH = frozenset(
    {
        "test_artifacts",
        "test_cancelling",
        "test_cut_pairs",
        "test_deadlines",
        "test_dispatch",
        "test_faulty_runners",
        "test_leaving_callers",
        "test_limits",
        "test_many_results",
        "test_metadata",
        "test_quiet_streams",
        "test_resources",
        "test_run_tokens",
        "test_watching",
    }
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs tests of runs with runners that are dialled, and with runners that attached."""
    is_supervised = metafunc.definition.get_closest_marker("supervised") is not None
    if metafunc.module.__name__.rpartition(".")[2] in _OVER_BOTH and not is_supervised:
        for name in {"host", "narrow_host"} & set(metafunc.fixturenames):
            metafunc.parametrize(name, ["dialled", "attached"], indirect=True, scope="session")


@contextmanager
def _host_of(folder: Path, config: str, plugin_ids: Sequence[str], way: str) -> Iterator[Any]:
    """A host with scripted runners that are reached in a way: `dialled` or `attached`."""
    host = HostProcess(folder / "data", plugins=folder / "plugins", config=config)
    (folder / "plugins").mkdir()
    if way == "dialled":
        for plugin_id in plugin_ids:
            write_scripted_plugin(folder / "plugins", plugin_id)
    attached: list[AttachedRunner] = []
    try:
        host.start()
        if way == "attached":
            attached = attach_scripted(host, *plugin_ids)
        yield host
    finally:
        host.close()
        for runner in attached:
            runner.close()


@pytest.fixture(scope="session")
def host(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HostProcess]:
    """A host that many tests share, with the echo runner and two scripted ones."""
    way = getattr(request, "param", "dialled")
    plugin_ids = ("acme/scripted", "acme/other")
    with _host_of(tmp_path_factory.mktemp("host"), _AGENTS, plugin_ids, way) as host:
        yield host


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
  reader_patience_seconds: 5.0
  bookmark_seconds: 0.2
  reserved_numbers: 64
"""


@pytest.fixture(scope="session")
def narrow_host(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HostProcess]:
    """A host whose limits are so small that tests meet them."""
    way = getattr(request, "param", "dialled")
    with _host_of(tmp_path_factory.mktemp("narrow"), _NARROW, ("acme/scripted",), way) as host:
        yield host


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
