"""JSON has the contract's names and every digit."""

import json
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from runmesh.admin.v1 import admin_pb2
from runmesh.v1 import discovery_pb2, gateway_pb2, result_pb2, types_pb2

from host_service.cli.json_output import print_json_list, to_json


def test_a_run_keeps_its_names_numbers_and_times() -> None:
    run = gateway_pb2.Run(
        run_id="r",
        status=gateway_pb2.RUN_STATUS_TIMED_OUT,
        last_sequence=9007199254740993,
        created_at=Timestamp(seconds=0, nanos=5000),
        failure=gateway_pb2.RunFailure(code="runner.timeout", message="m", details={"b": "2"}),
        usage=[types_pb2.TokenUsage(model_id="small", input_tokens=0)],
    )
    shown = to_json(run)
    assert shown["status"] == "RUN_STATUS_TIMED_OUT"
    assert shown["last_sequence"] == 9007199254740993
    assert shown["created_at"] == "1970-01-01T00:00:00.000005Z"
    assert shown["failure"] == {
        "code": "runner.timeout",
        "message": "m",
        "retryable": False,
        "details": {"b": "2"},
    }
    assert shown["usage"] == [{"model_id": "small", "input_tokens": 0}]


def test_what_has_no_presence_is_always_there_and_what_is_absent_is_not() -> None:
    shown = to_json(gateway_pb2.Run())
    assert shown["binding_id"] == ""
    assert shown["warnings"] == []
    assert shown["duplicate"] is False
    assert "ended_at" not in shown
    assert "failure" not in shown


def test_only_the_member_of_a_oneof_that_is_set_is_shown() -> None:
    shown = to_json(gateway_pb2.WatchRunResponse(bookmark=7))
    assert shown == {"bookmark": 7}


def test_a_value_of_a_later_version_stays_a_number() -> None:
    instance = discovery_pb2.RunnerInstance()
    instance.MergeFromString(b"\x18\x63")  # field 3, `state`: 99
    assert to_json(instance)["state"] == 99


def test_durations_bytes_and_optional_fields() -> None:
    agent = admin_pb2.Agent(id="a", enabled=False)
    agent.timeout.FromMilliseconds(1500)
    shown: dict[str, Any] = to_json(agent)
    assert shown["timeout"] == "1.500s"
    assert shown["enabled"] is False
    assert to_json(types_pb2.InlineContent(data=b"\xff\x00"))["data"] == "/wA="


def test_a_list_is_printed_as_one_readable_array(capsys: pytest.CaptureFixture[str]) -> None:
    results = [
        result_pb2.RunResult(sequence=n, log=result_pb2.LogLine(text="世界")) for n in (1, 2)
    ]
    print_json_list(results)
    printed = capsys.readouterr().out
    assert "世界" in printed
    assert [item["sequence"] for item in json.loads(printed)] == [1, 2]


def test_an_empty_list_is_an_array(capsys: pytest.CaptureFixture[str]) -> None:
    print_json_list([])
    assert capsys.readouterr().out == "[]\n"
