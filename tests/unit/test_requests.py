"""Tests of `host_service.requests`: bad requests are refused."""

import pytest
from runmesh.admin.v1 import admin_pb2
from runmesh.v1 import event_pb2, gateway_pb2

from host_service.errors import InvalidArgument, PayloadTooLarge
from host_service.limits import Limits
from host_service.requests import RequestCheck
from host_service.validation import Validator

CHECK = RequestCheck(validator=Validator(Limits().as_mapping()))


def test_request_within_the_rules_passes_unchanged() -> None:
    request = gateway_pb2.GetRunRequest(run_id="run-1")
    CHECK.require(request)
    assert request == gateway_pb2.GetRunRequest(run_id="run-1")


def test_all_fields_that_break_rules_are_named_at_once() -> None:
    request = gateway_pb2.DispatchRequest(
        event=event_pb2.EventEnvelope(type="No", actor=event_pb2.Actor()), agent_id="x" * 256
    )
    with pytest.raises(InvalidArgument) as raised:
        CHECK.require(request)
    fields = {fault.field for fault in raised.value.faults}
    assert fields == {"event.type", "event.actor.type", "agent_id"}
    assert all(field in raised.value.message for field in fields)


def test_size_is_told_before_anything_else_with_size_and_limit() -> None:
    agent = admin_pb2.Agent(
        id="bad id", runner_id="plugin:a/b/c", config_json='{"a": "' + "x" * 300_000 + '"}'
    )
    with pytest.raises(PayloadTooLarge) as raised:
        CHECK.require(admin_pb2.ApplyRequest(agents=[agent]))
    assert raised.value.facts == {"size": "300009", "limit": str(256 * 1024)}
    assert "agents[0].config_json" in raised.value.message


def test_sizes_are_the_operators() -> None:
    check = RequestCheck(validator=Validator({"config_bytes": 10}))
    agent = admin_pb2.Agent(id="a", runner_id="plugin:a/b/c", config_json='{"a": "123456"}')
    with pytest.raises(PayloadTooLarge):
        check.require(admin_pb2.ApplyRequest(agents=[agent]))
