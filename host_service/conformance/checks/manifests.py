"""What the process says it serves."""

from __future__ import annotations

import asyncio
from typing import Final

from runmesh.v1 import discovery_pb2

from host_service.conformance.check import Check, Reach
from host_service.conformance.findings import Failed
from host_service.conformance.requests import add_unknown_fields
from host_service.conformance.session import Session
from host_service.registry.manifest_check import check_manifests
from host_service.validation import find_violations

_AT_ONCE = 8


async def _listed(session: Session) -> str:
    listed = await session.list_runners()
    if not listed.runners:
        raise Failed(
            expected="at least one manifest",
            got="an empty list",
            advice="return the manifests of all runners that Run serves",
        )
    return ", ".join(manifest.id for manifest in listed.runners)


async def _keep_rules(session: Session) -> str:
    listed = await session.list_runners()
    plugin_id = session.introduction.plugin_id if session.introduction is not None else ""
    check = check_manifests(plugin_id, listed.runners)
    faults = [str(fault) for fault in check.faults]
    if not faults:
        for manifest in listed.runners:
            faults += [f"{manifest.id}: {each}" for each in find_violations(manifest)]
    if faults:
        raise Failed(
            expected="manifests that keep every rule of manifest.proto",
            got="; ".join(faults),
            advice="mend the named fields: a host leaves such a runner out and serves the others",
        )
    return "; ".join(check.warnings)


async def _set_by_host(session: Session) -> str:
    listed = await session.list_runners()
    if listed.instances or listed.faults:
        raise Failed(
            expected="no instances and no faults from a runner's process",
            got=f"{len(listed.instances)} instances, {len(listed.faults)} faults",
            advice="leave ListRunnersResponse.instances and .faults to hosts",
        )
    return ""


async def _no_side_effect(session: Session) -> str:
    first = await session.list_runners()
    request = discovery_pb2.ListRunnersRequest()
    add_unknown_fields(request)
    others = await asyncio.gather(
        *(session.list_runners(request) for _ in range(_AT_ONCE)), session.list_runners()
    )
    if any(other != first for other in others):
        raise Failed(
            expected="the same manifests in the same order every time",
            got="manifests that differ from call to call",
            advice="make manifests once, when the process starts, and list them by id",
        )
    return ""


_SOURCE = "discovery.proto, DiscoveryService.ListRunners"

CHECKS: Final = (
    Check(
        "manifests.listed",
        "ListRunners lists every runner that the process serves.",
        _SOURCE,
        _listed,
    ),
    Check(
        "manifests.rules",
        "Each manifest keeps the rules, and is one of this plugin.",
        "manifest.proto",
        _keep_rules,
    ),
    Check(
        "manifests.only",
        "What only a host may set is left alone.",
        "discovery.proto, ListRunnersResponse",
        _set_by_host,
        reach=Reach.DIALLED,
    ),
    Check(
        "manifests.repeated",
        "ListRunners has no side effect and may be repeated.",
        _SOURCE,
        _no_side_effect,
        reach=Reach.DIALLED,
    ),
)
