"""Runners, instances and faulty manifests, for people and as JSON."""

from datetime import UTC, datetime

from runmesh.v1 import discovery_pb2

from host_service.cli.display import print_table, words
from host_service.cli.failures import one_line
from host_service.cli.json_output import Json, to_json
from host_service.cli.listed import Listed
from host_service.cli.times import how_long_ago

# As much of an id as tells instances apart.
_PROBLEM_CHARACTERS = 200
_PRINTED_CHARACTERS = 120
_SHOWN_ID = 12


def listing(mesh: discovery_pb2.ListRunnersResponse, listed: Listed) -> list[Json]:
    """What was asked for, with the contract's names; a runner has its instances with it."""
    if listed is Listed.INSTANCES:
        return [to_json(instance) for instance in mesh.instances]
    if listed is Listed.FAULTS:
        return [to_json(fault) for fault in mesh.faults]
    return [
        {
            **to_json(runner),
            "instances": [
                to_json(instance) for instance in mesh.instances if runner.id in instance.runner_ids
            ],
        }
        for runner in mesh.runners
    ]


def print_mesh(mesh: discovery_pb2.ListRunnersResponse, only: Listed | None) -> None:
    """Prints what was asked for as tables."""
    if only in {None, Listed.RUNNERS}:
        _print_runners(mesh)
    if only in {None, Listed.INSTANCES}:
        _print_instances(mesh, apart=only is None)
    if only is Listed.FAULTS or (only is None and mesh.faults):
        _print_faults(mesh, apart=only is None)


def _print_runners(mesh: discovery_pb2.ListRunnersResponse) -> None:
    print_table(
        ["RUNNER", "VERSION", "NAME"],
        [
            [
                runner.id,
                runner.version,
                runner.label.text.get("en_US")
                or next(iter(runner.label.text.values()), runner.name),
            ]
            for runner in mesh.runners
        ],
        empty="no runners",
    )


def _print_instances(mesh: discovery_pb2.ListRunnersResponse, *, apart: bool) -> None:
    now = datetime.now(UTC)
    rows = []
    for instance in mesh.instances:
        state = words(discovery_pb2.InstanceState, instance.state)
        most = f" of {instance.max_concurrent_runs}" if instance.max_concurrent_runs else ""
        since = how_long_ago(instance.since, now=now) if instance.HasField("since") else ""
        rows.append(
            [
                instance.plugin_id,
                instance.instance_id[:_SHOWN_ID],
                state,
                since,
                f"{instance.active_runs}{most}",
                f"{instance.found_by} (development)" if instance.development else instance.found_by,
                brief_reason(instance.reason),
            ]
        )
    print_table(
        ["PLUGIN", "INSTANCE", "STATE", "SINCE", "RUNS", "FOUND BY", "REASON"],
        rows,
        empty="no instances",
        after_blank_line=apart,
    )


def brief_reason(reason: str) -> str:
    """Why an instance does not serve, in one line, with the last line of what it printed.

    That is where a program says what failed, as a rule; all of it is in the JSON and in the log.
    """
    problem, *printed = [each for each in map(one_line, reason.splitlines()) if each] or [""]
    if not printed:
        return _cut(problem, _PROBLEM_CHARACTERS)
    problem = problem.removesuffix("; the last it wrote:")
    return f"{_cut(problem, _PROBLEM_CHARACTERS)}: {_cut(printed[-1], _PRINTED_CHARACTERS)}"


def _cut(text: str, characters: int) -> str:
    return text if len(text) <= characters else f"{text[: characters - 3]}..."


def _print_faults(mesh: discovery_pb2.ListRunnersResponse, *, apart: bool) -> None:
    print_table(
        ["PLUGIN", "RUNNER", "FIELD", "WHAT IS WRONG"],
        [
            [fault.plugin_id, fault.runner_id, fault.field, one_line(fault.rule)]
            for fault in mesh.faults
        ],
        empty="no faulty manifests",
        after_blank_line=apart,
    )
