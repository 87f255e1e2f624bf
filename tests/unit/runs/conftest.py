"""A host without its edges: runs on real stores, and a real runner where one is asked for."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from host_service.agents.directory import AgentDirectory
from host_service.authorization.tokens import RunTokens
from host_service.limits import Limits
from host_service.registry import HostIdentity, Registry
from host_service.registry.schemas import ConfigSchemas
from host_service.runs.admission import Admission
from host_service.runs.orchestrator import Orchestrator
from host_service.runs.services import RunServices
from host_service.telemetry import Telemetry
from host_service.validation import Validator
from stores import Stores


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
        host_api_address="unix:/nowhere",
    )
    await registry.close()
    telemetry.close()


@pytest.fixture
def orchestrator(stores: Stores, services: RunServices, limits: Limits) -> Orchestrator:
    """Gives the one entry of runs."""
    return Orchestrator(
        stores=stores,
        directory=AgentDirectory(catalogue=stores.catalogue),
        services=services,
        admission=Admission(active=limits.active_runs, waiting=limits.waiting_runs),
    )
