"""HostAPI calls of a run, through the SDK, with both tokens checked and an audit row each."""

import base64
import json
import uuid
from collections.abc import Sequence
from functools import partial
from typing import Any

from runmesh.admin.v1 import admin_pb2
from runmesh.v1 import event_pb2, gateway_pb2

from benchmarks.processes import running, wait_until_served
from benchmarks.report import Row, at_least, at_most
from benchmarks.rounds import Plan, take_turns
from benchmarks.stage import Stage
from benchmarks.ways import WrongRun

_RUNNER = "plugin:benchmarks/caller/default"
_ECHO = "plugin:runmesh/echo/default"
_CONVERSATION = "host-calls"
# Each message of a caller is answered with one: a page of 50 is full.
_MESSAGES = 30
_TEXT = "a message of some length, as people write them in a conversation; " * 3
_CALLERS = 64
_LATENCY, _RATE = at_most(1.6), at_least(0.7)


async def measure(stage: Stage, plan: Plan) -> Sequence[Row]:
    """Measures each call one at a time and 64 at once, against a bare server of the same bytes."""
    await _have(stage, admin_pb2.Agent(id="echoing", runner_id=_ECHO))
    for _ in range(_MESSAGES):
        await _ask(stage, agent_id="echoing", text=_TEXT)
    calls = ("GetState", "PageHistory")
    files = []
    for call in calls:
        answer = await _run(stage, {"call": call})
        files.append(stage.folder / f"{call}.bin")
        files[-1].write_bytes(base64.b64decode(answer))
    address = f"unix:{stage.folder}/answers.sock"
    words = ("benchmarks.floors.answers", address, *map(str, files))
    rows: list[Row] = []
    async with running("answers", *words, folder=stage.folder) as program:
        await wait_until_served(program, address)
        for call in calls:
            rows += await _measure_call(stage, plan, call, address)
    return rows


async def _measure_call(stage: Stage, plan: Plan, call: str, address: str) -> list[Row]:
    rows = []
    for callers, name, unit, goal in (
        (1, "milliseconds", "ms", _LATENCY),
        (_CALLERS, "rate", "calls/s", _RATE),
    ):
        config = {"call": call, "callers": callers, "seconds": plan.seconds}
        measured = await take_turns(
            {
                "host": partial(_figure, stage, config, name),
                "bare": partial(_figure, stage, {**config, "bare_address": address}, name),
            },
            plan.rounds,
        )
        what = f"{call}, {callers} at once, through the SDK; bare call of the same bytes"
        rows.append(Row(what, unit, measured["host"], measured["bare"], goal))
    return rows


async def _figure(stage: Stage, config: dict[str, Any], name: str) -> float:
    return float(json.loads(await _run(stage, config))[name])


async def _run(stage: Stage, config: dict[str, Any]) -> str:
    """Runs the caller with a configuration, and returns what it logged."""
    await _have(
        stage, admin_pb2.Agent(id="caller", runner_id=_RUNNER, config_json=json.dumps(config))
    )
    return await _ask(stage, agent_id="caller", text="measure")


async def _have(stage: Stage, agent: admin_pb2.Agent) -> None:
    await stage.echo.admin.Apply(
        admin_pb2.ApplyRequest(agents=[agent]), metadata=stage.echo.metadata
    )


async def _ask(stage: Stage, *, agent_id: str, text: str) -> str:
    event = event_pb2.EventEnvelope(
        event_id=str(uuid.uuid4()),
        type="message.received",
        conversation_id=_CONVERSATION,
        input=event_pb2.EventInput(text=text),
    )
    request = gateway_pb2.DispatchRequest(event=event, agent_id=agent_id)
    logged, ended = "", None
    async for item in stage.echo.gateway.Dispatch(request, metadata=stage.echo.metadata):
        if item.WhichOneof("item") == "ended":
            ended = item.ended
        for result in item.results.results:
            if result.HasField("log"):
                logged = result.log.text
    if ended is None or ended.status != gateway_pb2.RUN_STATUS_COMPLETED:
        why = "" if ended is None else ended.failure.message
        raise WrongRun(f"a run of agent {agent_id} did not end well: {why}")
    return logged
