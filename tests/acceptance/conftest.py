"""Hosts that acceptance tests talk to."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.commands import CommandLine, running
from tests.acceptance.grpcurl import Grpcurl, find_grpcurl
from tests.integration.host.host_process import HostProcess

AGENTS = """\
agents:
- id: default
  runner_id: plugin:runmesh/echo/default
- id: slow
  runner_id: plugin:runmesh/echo/default
  config: {repeat: 400, size: 4, interval_seconds: 0.05}
- id: failing
  runner_id: plugin:runmesh/echo/default
  config: {failure: error}
- id: crashing
  runner_id: plugin:runmesh/echo/default
  config: {failure: crash}
"""


@pytest.fixture(scope="session")
def running_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    """The command line on the data folder of a host that runs, with agents of several tempers."""
    folder = tmp_path_factory.mktemp("host")
    configuration = folder / "agents.yaml"
    configuration.write_text(AGENTS)
    with running(folder / "data", "--config", str(configuration)) as command_line:
        yield command_line


@pytest.fixture(scope="session")
def plain_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostProcess]:
    """A host without any option but free ports, started where files would be open to all."""
    host = HostProcess(tmp_path_factory.mktemp("plain") / "data")
    before = os.umask(0)
    try:
        host.start()
    finally:
        os.umask(before)
    try:
        yield host
    finally:
        host.close()


@pytest.fixture(scope="session")
def grpcurl() -> Grpcurl:
    """The program that people look into a gRPC server with."""
    return find_grpcurl()


@pytest.fixture
def alone(tmp_path: Path) -> CommandLine:
    """The command line on a data folder on which no host runs."""
    return CommandLine(tmp_path / "data")
