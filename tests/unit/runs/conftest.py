"""A host without its edges: runs on real stores, and a real runner where one is asked for."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from host_service.actions.desk import ActionDesk
from host_service.actions.executors import ActionExecutors
from host_service.agents.directory import AgentDirectory
from host_service.authorization.tokens import RunTokens
from host_service.limits import Limits
from host_service.registry import HostIdentity, Instance, Registry
from host_service.registry.schemas import ConfigSchemas
from host_service.runs.admission import Admission
from host_service.runs.host_addresses import HostApiAddresses
from host_service.runs.orchestrator import Orchestrator
from host_service.runs.services import RunServices
from host_service.telemetry import Telemetry
from host_service.validation import Validator
from stores import Stores
from tests.unit.runs.runner import Runner, Script, ServeScript, introduce, serve


@pytest.fixture
def limits() -> Limits:
    """Gives the limits in force; a test that wants others has a fixture of this name."""
    return Limits()


@pytest.fixture
async def services(stores: Stores, limits: Limits) -> AsyncIterator[RunServices]:
    """Gives what runs work with; nobody serves a runner yet."""
    registry = Registry(identity=HostIdentity("host", "Host", "0"))
    telemetry = Telemetry(service_version="0", host_id="host")
    yield RunServices(
        ledger=stores.ledger,
        state=stores.state,
        artifacts=stores.artifacts,
        actions=ActionDesk(
            store=stores.actions,
            executors=ActionExecutors(),
            audit=stores.audit,
            clock=lambda: datetime.now(UTC),
            host_id="host",
            host_incarnation="start-1",
        ),
        registry=registry,
        schemas=ConfigSchemas(registry=registry),
        tokens=RunTokens(limits=Limits()),
        limits=limits,
        validator=Validator(limits.as_mapping()),
        telemetry=telemetry,
        clock=lambda: datetime.now(UTC),
        host_id="host",
        host_incarnation="start-1",
        host_version="0",
        host_api_addresses=HostApiAddresses(socket="unix:/nowhere"),
    )
    await registry.close()
    telemetry.close()


@pytest.fixture
def directory(stores: Stores, services: RunServices) -> AgentDirectory:
    """Gives the agents in force; there are none yet."""
    return AgentDirectory(
        catalogue=stores.catalogue,
        secrets=stores.secrets,
        keys=stores.keys,
        clock=services.clock,
    )


@pytest.fixture
def orchestrator(
    stores: Stores, services: RunServices, directory: AgentDirectory, limits: Limits
) -> Orchestrator:
    """Gives the one entry of runs."""
    return Orchestrator(
        stores=stores,
        directory=directory,
        services=services,
        admission=Admission(active=limits.active_runs, waiting=limits.waiting_runs),
    )


@pytest.fixture
async def serving(services: RunServices, tmp_path: Path) -> AsyncIterator[ServeScript]:
    """Serves a script as another instance of the runner."""
    async with AsyncExitStack() as stack:
        count = 0

        async def start(script: Script, **about: Any) -> tuple[Runner, Instance]:
            nonlocal count
            count += 1
            address = f"unix:{tmp_path}/r{count}"
            runner = Runner(script)
            server = await serve(runner, address)
            stack.push_async_callback(server.stop, None)
            return runner, introduce(services.registry, address, **about)

        yield start
