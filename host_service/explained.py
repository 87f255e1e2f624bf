"""An explanation of a run as the contract has it. Pure functions."""

from __future__ import annotations

from google.protobuf.duration_pb2 import Duration
from runmesh.admin.v1 import explain_pb2
from runmesh.v1 import event_pb2

from host_service import wire
from host_service.agents.resolution import Match, Rank
from host_service.authorization.grants import Grant
from host_service.runs.choice import ByBinding, ByCaller, ByReplay, Choice, lost_by
from host_service.runs.course import Course
from host_service.runs.explaining import CallTotal, Explanation, Said, Stretch
from stores.audit import AuditRecord
from stores.records import EventRecord


def explanation_message(explanation: Explanation) -> explain_pb2.ExplainRunResponse:
    """Return an explanation as the contract has it."""
    agent, course, event = explanation.agent, explanation.course, explanation.event
    calls, said = explanation.calls, explanation.said
    return explain_pb2.ExplainRunResponse(
        run=wire.run_message(explanation.run),
        arrival=_arrival(event) if event is not None else None,
        resolution=_resolution(explanation.choice),
        agent=explain_pb2.KeptAgent(
            agent_id=agent.id,
            revision=agent.revision,
            config_json=agent.config_json,
            withheld=explanation.withheld,
        ),
        rights=_rights(course) if course is not None and course.grants is not None else None,
        calls=explain_pb2.Calls(
            calls=[_call(row) for row in calls.items],
            left_out=calls.left_out,
            totals=[_total(each) for each in explanation.totals],
        ),
        said=explain_pb2.Said(
            results=[_said(each) for each in said.items],
            left_out=said.left_out,
            text_characters=explanation.text_characters,
        ),
        stretches=[_stretch(each) for each in explanation.stretches],
        advice=explanation.advice,
        replayed_by=explanation.replayed_by,
    )


def _arrival(event: EventRecord) -> explain_pb2.Arrival:
    return explain_pb2.Arrival(
        event=event_pb2.EventEnvelope.FromString(event.envelope),
        received_at=wire.timestamp(event.received_at),
        size_bytes=len(event.envelope),
    )


def _resolution(choice: Choice | None) -> explain_pb2.Resolution:
    match choice:
        case ByBinding(winner=winner, beaten=beaten):
            won = explain_pb2.WinningBinding(
                winner=_rank(winner), beaten=[_rank(each, winner.rank) for each in beaten]
            )
            return explain_pb2.Resolution(binding=won)
        case ByCaller():
            return explain_pb2.Resolution(caller=explain_pb2.NamedByCaller())
        case ByReplay(side_effects=side_effects, runner_address=address):
            replay = explain_pb2.Replay(side_effects=side_effects, runner_address=address)
            return explain_pb2.Resolution(replay=replay)
    return explain_pb2.Resolution()


def _rank(match: Match, winner: Rank | None = None) -> explain_pb2.BindingRank:
    return explain_pb2.BindingRank(
        binding_id=match.binding_id,
        scope=match.rank.scope,
        pattern=match.rank.pattern,
        filters=match.rank.filters,
        lost_by=lost_by(match.rank, winner) if winner is not None else "",
    )


def _rights(course: Course) -> explain_pb2.Rights:
    return explain_pb2.Rights(
        grants=[_grant(each) for each in course.grants or ()], left_out=course.left_out
    )


def _grant(grant: Grant) -> explain_pb2.Grant:
    return explain_pb2.Grant(
        kind=grant.kind,
        name=grant.name,
        granted=grant.granted,
        asked=grant.asked,
        granted_by=grant.granted_by,
        limited_by=grant.limited_by,
    )


def _call(row: AuditRecord) -> explain_pb2.Call:
    return explain_pb2.Call(
        time=wire.timestamp(row.at),
        rpc=row.rpc,
        outcome=wire.enum_number(explain_pb2.CallOutcome, row.outcome.name),
        reason=row.reason,
        resource=row.resource,
        scope=row.scope,
        duration=_seconds(row.duration_seconds),
        count=row.count,
    )


def _total(total: CallTotal) -> explain_pb2.CallTotal:
    return explain_pb2.CallTotal(
        rpc=total.rpc,
        count=total.count,
        not_done=total.not_done,
        duration=_seconds(total.seconds),
    )


def _said(said: Said) -> explain_pb2.SaidResult:
    return explain_pb2.SaidResult(
        kind=said.kind,
        first_sequence=said.first_sequence,
        sequence=said.sequence,
        time=wire.timestamp(said.at),
        size_bytes=said.size_bytes,
        summary=said.summary,
    )


def _stretch(stretch: Stretch) -> explain_pb2.Stretch:
    message = explain_pb2.Stretch(name=stretch.name)
    message.duration.FromTimedelta(stretch.duration)
    return message


def _seconds(seconds: float) -> Duration:
    message = Duration()
    message.FromMicroseconds(round(seconds * 1_000_000))
    return message
