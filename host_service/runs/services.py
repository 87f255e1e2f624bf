"""What every run works with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from host_service.actions.desk import ActionDesk
from host_service.authorization.tokens import RunTokens
from host_service.catalogue.shelf import Shelf
from host_service.catalogue.tool import Toolset
from host_service.limits import Limits
from host_service.registry.registry import Registry
from host_service.registry.schemas import ConfigSchemas
from host_service.runs.course import GrantTexts
from host_service.runs.host_addresses import HostApiAddresses
from host_service.telemetry import Telemetry
from host_service.validation import Validator
from stores import Stores
from stores.artifacts import Artifacts
from stores.ledger import RunLedger
from stores.state import State


@dataclass(frozen=True, slots=True, kw_only=True)
class RunServices:
    """What every run works with.

    Attributes:
        ledger: Where runs are written.
        state: Where state is.
        artifacts: Where files are.
        actions: Judges and executes the actions that results ask for.
        registry: Where instances are found.
        schemas: Know what runners' configurations must be.
        tokens: Issues and revokes run tokens.
        limits: How much is too much.
        validator: The contract's rules under these limits.
        telemetry: Traces.
        clock: Tells the time.
        host_id: This host.
        host_incarnation: This start of it.
        host_version: Its version.
        host_api_addresses: Where runners reach HostAPIService.
        shelf: Gives what the catalogue holds now.
        toolset: Gives what tool servers offer now.
        calls_on: What HostAPI calls of these runs work on; None: what the host works on.
        grant_texts: The texts of grants that runs have in common.
        side_effects: Whether what these runs do stays: False for a replay that keeps nothing.
    """

    ledger: RunLedger
    state: State
    artifacts: Artifacts
    actions: ActionDesk
    registry: Registry
    schemas: ConfigSchemas
    tokens: RunTokens
    limits: Limits
    validator: Validator
    telemetry: Telemetry
    clock: Callable[[], datetime]
    host_id: str
    host_incarnation: str
    host_version: str
    host_api_addresses: HostApiAddresses
    shelf: Callable[[], Shelf] = Shelf
    toolset: Callable[[], Toolset] = Toolset
    calls_on: Stores | None = None
    grant_texts: GrantTexts = field(default_factory=GrantTexts)
    side_effects: bool = True
