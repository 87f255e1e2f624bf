"""Several hosts, replays, and the tokens that go with every call to a host."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from typing import Final

import grpc
from runmesh.v1 import run_pb2

from host_service.conformance.check import Check
from host_service.conformance.findings import Failed, Skipped
from host_service.conformance.host_api import HostCall
from host_service.conformance.session import Session
from host_service.conformance.statuses import told

# A call may have been on its way when its run ended.
_ON_ITS_WAY_SECONDS = 1.0
_MOST_NAMED = 3
_REPLAYS = 2


async def _unknown_runner(session: Session) -> str:
    def rename(request: run_pb2.RunRequest) -> None:
        request.runner_id = f"{request.runner_id.rpartition('/')[0]}/conformance-none"

    run = session.start("a runner that is not there", change=rename)
    await session.must_end(run)
    if run.status is not grpc.StatusCode.NOT_FOUND or run.frames:
        raise Failed(
            expected="NOT_FOUND and no result for a runner_id that is not served here",
            got=f"{len(run.results)} results and {told(run.status, run.details)}",
            advice="look the runner_id up among your manifests before anything else",
        )
    return ""


async def _two_hosts(session: Session) -> str:
    """Runs of two hosts, at once and one after the other, so that whoever keeps an address errs."""
    if session.limit == 1:
        for host in (0, 1, 0):
            await session.run("of two hosts", host=host)
    else:
        await session.run_all({"label": "of two hosts", "host": at % 2} for at in range(4))
        await session.run("of the other host", host=1)
    wrong = [each for each in _wrong_calls(session) if "another host" in each]
    if wrong:
        raise Failed(
            expected="each run to call the host that it came from",
            got="; ".join(wrong[:_MOST_NAMED]),
            advice="open the connection to host_access.address of the run itself; keep connections "
            "by address, never one for all",
        )
    called = {call.address for call in session.calls}
    return "" if called else "the runner did not call its hosts"


async def _replayed(session: Session) -> str:
    run_id = str(uuid.uuid4())
    for _ in range(_REPLAYS):
        await session.run("replayed", run_id=run_id)
    await session.run("replayed elsewhere", run_id=run_id, host=1)
    return ""


async def _both_tokens(session: Session) -> str:
    await _had_calls(session)
    for call in session.calls:
        missing = []
        if not (call.authorization or "").startswith("Bearer "):
            missing.append("`authorization: Bearer <run token>`")
        if not call.instance:
            missing.append("`runmesh-instance: <instance token>`")
        if missing:
            raise Failed(
                expected="`authorization: Bearer <run token>` and `runmesh-instance: <instance "
                "token>` with every call",
                got=f"{call.method} without {' and '.join(missing)}",
                advice="send the run's host_access.run_token and host_access.instance_token as "
                "metadata of every call, in one interceptor",
            )
    return f"{len(session.calls)} calls"


async def _own_tokens(session: Session) -> str:
    await _had_calls(session)
    wrong = list(_wrong_calls(session))
    if wrong:
        more = f" (and {len(wrong) - _MOST_NAMED} more)" if len(wrong) > _MOST_NAMED else ""
        raise Failed(
            expected="the tokens that came with the run, at the address that came with it",
            got="; ".join(wrong[:_MOST_NAMED]) + more,
            advice="use the host_access of the run that calls, and keep nothing of it when the run "
            "is over",
        )
    return f"{len(session.calls)} calls"


async def _had_calls(session: Session) -> None:
    if not session.calls:
        await session.run("calls to the host")
    if not session.calls:
        raise Skipped("the runner made no call to the host")
    # What still is on its way is to be seen as well.
    await asyncio.sleep(0.1)


def _wrong_calls(session: Session) -> Iterator[str]:
    """Tells of each call whose tokens are not those of a run under way at that host."""
    for call in session.calls:
        problem = _problem(session, call)
        if problem:
            yield f"{call.method}: {problem}"


def _problem(session: Session, call: HostCall) -> str:
    if call.authorization is None or call.instance is None:
        return ""
    token = call.authorization.removeprefix("Bearer ")
    grant = call.grant
    if grant is None:
        for host in session.hosts:
            if token in host.grants:
                return (
                    f"the run token of {host.grants[token].label}, which another host gave, at "
                    f"{call.address}"
                )
        return "a run token that no run was given"
    if grant.ended_at is not None and call.at > grant.ended_at + _ON_ITS_WAY_SECONDS:
        late_seconds = call.at - grant.ended_at
        return f"the run token of {grant.label}, which had ended {late_seconds:.1f} s before"
    if call.instance != grant.instance_token:
        return f"the run token of {grant.label} with an instance token that did not come with it"
    return ""


_ACCESS = "run.proto, HostAccess"

CHECKS: Final = (
    Check(
        "hosts.unknown-runner",
        "A runner id that is not served here is NOT_FOUND.",
        "run.proto, RunService.Run",
        _unknown_runner,
    ),
    Check("hosts.two", "Several hosts may use one process at once.", _ACCESS, _two_hosts),
    Check(
        "hosts.replayed",
        "A run may come again, with other tokens and from another host.",
        _ACCESS,
        _replayed,
    ),
)
TOKEN_CHECKS: Final = (
    Check("tokens.both", "Every call to the host carries both tokens.", _ACCESS, _both_tokens),
    Check(
        "tokens.own",
        "A run uses the tokens and the address that came with it.",
        _ACCESS,
        _own_tokens,
    ),
)
