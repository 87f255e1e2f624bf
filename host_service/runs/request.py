"""What a runner is called with: the run's context, its rights, and its tokens."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache

from runmesh.v1 import run_pb2

from host_service.agents.agent import Agent
from host_service.agents.config_schema import ConfigSchema
from host_service.agents.own_choice import with_own_model
from host_service.agents.prompts import Prompts
from host_service.agents.selectors import FILE, Selection, selections
from host_service.authorization.snapshot import GivenFile, Snapshot, freeze
from host_service.authorization.tokens import Told
from host_service.registry.instance import Instance
from host_service.runs.asked import asked_by
from host_service.runs.context import Circumstances, build_context, duration
from host_service.runs.event import Event
from host_service.runs.outcome import RunFault
from host_service.runs.services import RunServices
from host_service.runs.state import RunState
from stores.records import RunRecord


@dataclass(frozen=True, slots=True)
class PreparedCall:
    """A call that is ready to be made.

    Attributes:
        request: What the runner gets.
        run_token: The token in it; to be revoked when the run ends.
        started_at: When the rights were frozen.
        deadline: When the run is cut off; None: never.
        left_out: How many parts of the input a text-only runner does not get.
        snapshot: What the run may do.
        state: What it keeps. To be filled into the context before the call.
    """

    request: run_pb2.RunRequest
    run_token: str
    started_at: datetime
    deadline: datetime | None
    left_out: int
    snapshot: Snapshot
    state: RunState


def selected_files(agent: Agent, services: RunServices) -> tuple[str, ...]:
    """Return the ids of the artifacts that an agent's configuration names as files.

    Raises:
        RunFault: The agent's configuration breaks the runner's schema.
    """
    selected, _ = _selected(agent, services)
    return tuple(each.name for each in selected if each.kind == FILE)


async def find_files(agent: Agent, services: RunServices) -> tuple[GivenFile, ...]:
    """Return what is known of these files, of those that there are.

    Raises:
        RunFault: The agent's configuration breaks the runner's schema.
    """
    found = [await services.artifacts.get(each) for each in selected_files(agent, services)]
    return tuple(
        GivenFile(artifact_id=each.artifact_id, name=each.name, mime_type=each.mime_type)
        for each in found
        if each is not None
    )


def prepare_call(
    *,
    record: RunRecord,
    event: Event,
    agent: Agent,
    instance: Instance,
    services: RunServices,
    files: tuple[GivenFile, ...] = (),
) -> PreparedCall:
    """Freeze the run's rights, issue its token, and build what its runner is called with.

    Args:
        record: The run.
        event: What it answers.
        agent: The agent.
        instance: Who is called.
        services: What every run works with.
        files: What is known of the files that the configuration names.

    Raises:
        RunFault: The agent's configuration breaks the runner's schema.
    """
    selected, config_json = _selected(agent, services)
    schema = services.schemas.of(agent.runner_id)
    snapshot = freeze(
        run_id=record.run_id,
        plugin_id=instance.plugin_id,
        agent=agent,
        asked=asked_by(instance.manifests[record.runner_id]),
        identity=event.identity(),
        selections=selected,
        shelf=services.shelf(),
        toolset=services.toolset(),
        files=files,
    )
    # A run that was accepted as running has its times already, and so has one that is tried again.
    now = record.started_at or services.clock()
    timeout_seconds = agent.timeout_seconds
    deadline = record.deadline
    if deadline is None and timeout_seconds:
        deadline = now + timedelta(seconds=timeout_seconds)
    context, left_out = build_context(
        run_id=record.run_id,
        event=event,
        agent=agent,
        binding_id=record.binding_id,
        session_key=record.session_key,
        config_json=config_json,
        snapshot=snapshot,
        circumstances=Circumstances(
            host_id=services.host_id,
            host_version=services.host_version,
            trace_id=services.telemetry.trace_id(),
            deadline=deadline,
            latest_position=record.latest_cursor_position,
        ),
    )
    if record.replay_of is not None:
        context.runtime.metadata["replay_of"] = record.replay_of
        context.runtime.metadata["side_effects"] = "on" if services.side_effects else "off"
    token = services.tokens.issue(
        snapshot=snapshot,
        instance_token=instance.instance_token,
        told=Told(
            prompts=Prompts.of(schema, config_json),
            # Where the event stands may be known only later, and is then said in the context.
            latest_cursor=lambda: request.context.context.latest_cursor,
            deadline=deadline,
            replays="" if services.side_effects else record.replay_of or "",
        ),
        stores=services.calls_on,
    )
    access = run_pb2.HostAccess(
        host_id=services.host_id,
        address=services.host_api_addresses.for_instance(instance),
        run_token=token,
        instance_token=instance.instance_token,
    )
    request = run_pb2.RunRequest(
        runner_id=record.runner_id,
        context=context,
        timeout=duration(timeout_seconds) if timeout_seconds else None,
        host_access=access,
    )
    state = RunState(
        snapshot=snapshot,
        store=services.state,
        limits=services.limits,
        validator=services.validator,
    )
    # While the acceptance is being written, state is read: both take a thread's time, not ours.
    state.begin_reading()
    return PreparedCall(request, token, now, deadline, left_out, snapshot, state)


def _selected(agent: Agent, services: RunServices) -> tuple[tuple[Selection, ...], str]:
    """Return what an agent's configuration selects, and the configuration, defaults filled in."""
    schema = services.schemas.of(agent.runner_id)
    if schema is None:
        return (), agent.config_json
    config_json = _checked(with_own_model(agent, services.shelf(), schema), schema)
    return selections(schema, config_json), config_json


@lru_cache(maxsize=256)
def _checked(agent: Agent, schema: ConfigSchema) -> str:
    """Return the agent's configuration, checked again, since its runner may have changed."""
    faults = schema.faults(agent.config_json)
    if faults:
        text = "; ".join(map(str, faults))
        raise RunFault("host.configuration", f"agent {agent.id!r} cannot run: {text}")
    return schema.fill(agent.config_json)
