"""A run explained, for whoever wants to know why it came out as it did.

First what became of it and what to do next, then what led there, in the order in which it happened.
On a terminal of 80 columns nothing is cut: long cells go on below.
"""

from collections import defaultdict

from google.protobuf.duration_pb2 import Duration
from rich.text import Text
from runmesh.admin.v1 import explain_pb2
from runmesh.v1 import event_pb2, gateway_pb2

from host_service.cli.display import output, print_table, print_wrapped, words
from host_service.cli.failures import one_line
from host_service.cli.times import local_time, span, span_of

_BAR_WIDTH = 24
_LONGEST_TEXT = 200
_STRETCHES = {
    "accept": "finding its agent",
    "turn": "waiting for its turn",
    "instance": "waiting for an instance",
    "waiting": "waiting",
    "start": "freezing rights, building the context",
    "first_result": "calling the runner, until its first result",
    "runner": "the runner",
    "end": "judging and putting together the end",
    "store": "storing the end",
}
_PLURALS = {
    "permission": "permissions",
    "model": "models",
    "tool": "tools",
    "knowledge_base": "knowledge bases",
    "skill": "skills",
    "file": "files",
    "storage": "storage",
    "state": "state",
    "action": "actions",
    "history": "history",
}


def print_explanation(told: explain_pb2.ExplainRunResponse) -> None:
    """Prints all that is known of a run."""
    _print_outcome(told)
    _print_arrival(told)
    _print_choice(told)
    _print_rights(told)
    _print_calls(told)
    _print_results(told)
    _print_time(told)


def _print_outcome(told: explain_pb2.ExplainRunResponse) -> None:
    run = told.run
    failure = run.failure
    print_wrapped(
        [
            ("run", run.run_id),
            ("status", words(gateway_pb2.RunStatus, run.status)),
            ("took", _took(run)),
            ("failure", f"{failure.code}: {failure.message}" if run.HasField("failure") else ""),
            *(("", f"{name}: {value}") for name, value in sorted(failure.details.items())),
            ("what next", told.advice),
            ("replay of", run.replay_of),
            ("replayed by", ", ".join(told.replayed_by)),
            ("steered into", run.steered_into),
        ]
    )
    if run.warnings:
        print_table(
            ["WARNING", "AFTER", "WHAT HAPPENED"],
            [
                [each.code, span(run.created_at, each.time), one_line(each.message)]
                for each in run.warnings
            ],
            after_blank_line=True,
        )


def _took(run: gateway_pb2.Run) -> str:
    if not run.HasField("ended_at"):
        return f"it is still {words(gateway_pb2.RunStatus, run.status)}"
    return span(run.created_at, run.ended_at)


def _print_arrival(told: explain_pb2.ExplainRunResponse) -> None:
    _print_heading("what arrived")
    if not told.HasField("arrival"):
        print("the event is not kept any more")
        return
    arrival, event = told.arrival, told.arrival.event
    source = words(event_pb2.EventSource, event.source)
    print_wrapped(
        [
            ("event", f"{event.type} from {source}, {arrival.size_bytes} bytes"),
            ("id", event.event_id),
            ("received", local_time(arrival.received_at)),
            ("said", _shortened(_heard(event.input))),
            ("data", _shortened(event.data_json)),
            ("actor", _named(event.actor) if event.HasField("actor") else ""),
            ("subject", _named(event.subject) if event.HasField("subject") else ""),
            ("workspace", event.workspace_id),
            ("bot", event.bot_id),
            ("conversation", event.conversation_id),
            ("thread", event.thread_id),
            ("reply to", _delivery(event)),
        ]
    )


def _heard(said: event_pb2.EventInput) -> str:
    files = len(said.attachments) + sum(not part.HasField("text") for part in said.parts)
    text = said.text or "".join(part.text for part in said.parts)
    return f"{text} (and {files} files)" if files else text


def _named(who: event_pb2.Actor | event_pb2.Subject) -> str:
    return f"{who.type} {who.id}".strip()


def _delivery(event: event_pb2.EventEnvelope) -> str:
    if not event.HasField("delivery"):
        return ""
    delivery = event.delivery
    target = f", {_shortened(delivery.reply_target_json)}" if delivery.reply_target_json else ""
    return f"{delivery.surface}{target}"


def _print_choice(told: explain_pb2.ExplainRunResponse) -> None:
    _print_heading("which agent, and why")
    run, agent = told.run, told.agent
    print_wrapped(
        [
            ("agent", f"{agent.agent_id}, revision {agent.revision}"),
            ("chosen by", _chosen_by(told.resolution)),
            ("runner", run.runner_id),
            ("instance", run.instance_id or "it never had one"),
            ("configuration", agent.config_json),
            ("withheld", ", ".join(agent.withheld)),
        ]
    )
    beaten = told.resolution.binding.beaten
    if beaten:
        print_table(
            ["BINDING THAT LOST", "BY ITS", "SCOPE", "TYPES", "FILTERS"],
            [
                [
                    each.binding_id,
                    each.lost_by,
                    each.scope or "everywhere",
                    each.pattern,
                    str(each.filters),
                ]
                for each in beaten
            ],
            after_blank_line=True,
        )


def _chosen_by(resolution: explain_pb2.Resolution) -> str:
    match resolution.WhichOneof("by"):
        case "binding":
            won = resolution.binding.winner
            filters = f", {won.filters} filters" if won.filters else ""
            return f"binding {won.binding_id}: {won.scope or 'everywhere'}, {won.pattern}{filters}"
        case "caller":
            return "the caller, who named it"
        case "replay":
            replay = resolution.replay
            where = f" at {replay.runner_address}" if replay.runner_address else ""
            effects = "with" if replay.side_effects else "without"
            return f"an operator, who had a run replayed{where} {effects} side effects"
    return "not kept"


def _print_rights(told: explain_pb2.ExplainRunResponse) -> None:
    _print_heading("what it was granted")
    if not told.HasField("rights"):
        print("its rights were not frozen, or not written down before its host was lost")
        return
    grants = told.rights.grants
    given: defaultdict[str, list[str]] = defaultdict(list)
    for each in grants:
        if each.granted:
            given[each.kind].append(_given(each))
    print_wrapped([(_PLURALS.get(kind, kind), ", ".join(names)) for kind, names in given.items()])
    unasked = [each for each in grants if each.limited_by == "manifest" and each.granted_by]
    cut = [each for each in grants if not each.granted and each.asked]
    if unasked:
        print_wrapped(
            [("not asked for", ", ".join(f"{_kind(each)} {each.name}" for each in unasked))]
        )
    if cut:
        print_table(
            ["ASKED FOR, NOT GRANTED", "", "CUT BY", "GRANTED BY"],
            [[_kind(each), each.name, each.limited_by, each.granted_by] for each in cut],
            after_blank_line=True,
        )
    if not given and not cut and not unasked:
        print("nothing, and it asked for nothing")
    if told.rights.left_out:
        print(f"and {told.rights.left_out} more")


def _kind(grant: explain_pb2.Grant) -> str:
    return grant.kind.replace("_", " ")


def _given(grant: explain_pb2.Grant) -> str:
    # What needs only to be asked for is granted by nobody else.
    by = grant.granted_by
    return grant.name if by in {"", "manifest"} else f"{grant.name} ({by})"


def _print_calls(told: explain_pb2.ExplainRunResponse) -> None:
    _print_heading("what it asked of the host")
    calls = told.calls
    if not calls.calls:
        print("nothing")
        return
    start = told.run.created_at
    rows = [
        [
            span(start, each.time),
            each.rpc,
            " ".join([words(explain_pb2.CallOutcome, each.outcome), each.reason]).strip(),
            span_of(_seconds(each.duration)),
            _about(each),
        ]
        for each in calls.calls
    ]
    print_table(
        ["AFTER", "CALL", "OUTCOME", "TOOK", "ABOUT"],
        _with_gap(rows, len(calls.calls), calls.left_out),
    )
    print_table(
        ["ALL CALLS", "COUNT", "NOT DONE", "TOOK TOGETHER"],
        [
            [
                each.rpc,
                str(each.count),
                str(each.not_done) if each.not_done else "",
                span_of(_seconds(each.duration)),
            ]
            for each in calls.totals
        ],
        after_blank_line=True,
    )


def _about(call: explain_pb2.Call) -> str:
    times = f"{call.count} times" if call.count > 1 else ""
    return " ".join(part for part in (call.scope, one_line(call.resource), times) if part)


def _print_results(told: explain_pb2.ExplainRunResponse) -> None:
    _print_heading("what it said")
    said, start = told.said, told.run.created_at
    if not said.results:
        print("nothing")
        return
    rows = [
        [
            _numbers(each.first_sequence, each.sequence),
            span(start, each.time),
            each.kind,
            str(each.size_bytes),
            one_line(each.summary),
        ]
        for each in said.results
    ]
    print_table(
        ["NUMBERS", "AFTER", "RESULT", "BYTES", ""],
        _with_gap(rows, len(said.results), said.left_out),
    )


def _numbers(first: int, last: int) -> str:
    return str(last) if first in {0, last} else f"{first}-{last}"


def _with_gap(rows: list[list[str]], count: int, left_out: int) -> list[list[str]]:
    """Says in the middle of long lists how much is not there."""
    if not left_out:
        return rows
    gap = ["…", "", f"{left_out} more", "", ""]
    return [*rows[: count // 2], gap, *rows[count // 2 :]]


def _print_time(told: explain_pb2.ExplainRunResponse) -> None:
    _print_heading("where the time went")
    stretches = told.stretches
    if not stretches:
        print("it has not begun")
        return
    total = sum(_seconds(each.duration) for each in stretches)
    print_table(
        ["", "TOOK", "SHARE"],
        [
            [
                _STRETCHES.get(each.name, each.name),
                span_of(_seconds(each.duration)),
                _bar(_seconds(each.duration) / total if total else 0.0),
            ]
            for each in stretches
        ],
    )
    called = sum(_seconds(each.duration) for each in told.calls.totals)
    if called:
        print(f"of the runner's time, {span_of(called)} are calls of the host; they may overlap")


def _bar(share: float) -> str:
    blocks = "█" * round(share * _BAR_WIDTH)
    return f"{blocks or '▏'} {share:.0%}"


def _print_heading(text: str) -> None:
    print()
    output().print(Text(text.upper(), style="bold"))


def _shortened(text: str) -> str:
    line = one_line(text)
    if len(line) <= _LONGEST_TEXT:
        return line
    return f"{line[:_LONGEST_TEXT]}… ({len(text)} characters)"


def _seconds(duration: Duration) -> float:
    return duration.ToNanoseconds() / 1e9
