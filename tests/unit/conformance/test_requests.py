"""Tests of `host_service.conformance.requests` and `samples`."""

import json

import pytest
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet
from runmesh.v1 import manifest_pb2, run_pb2

from host_service.conformance.host_api import KitHost
from host_service.conformance.requests import (
    add_unknown_fields,
    config_json,
    fill_up,
    leave_bare,
    run_request,
    set_unknown_numbers,
)
from host_service.conformance.samples import TEXTS, long_line, long_text
from host_service.limits import Limits
from host_service.validation import find_violations

MANIFEST = manifest_pb2.RunnerManifest(id="plugin:acme/desk/default", name="default")


@pytest.fixture
async def request_of_a_run() -> run_pb2.RunRequest:
    host = KitHost([])
    host.address = "unix:/run/host.sock"
    return run_request(
        MANIFEST,
        host=host,
        grant=host.grant("run-1", "a run"),
        text="hello",
        event_type="message.received",
        config={},
        timeout_seconds=1.5,
    )


async def test_requests_keep_the_contract_bare_full_and_in_between(
    request_of_a_run: run_pb2.RunRequest,
) -> None:
    assert find_violations(request_of_a_run) == []
    fill_up(request_of_a_run)
    assert find_violations(request_of_a_run) == []
    leave_bare(request_of_a_run)
    assert find_violations(request_of_a_run) == []
    assert not request_of_a_run.HasField("timeout")
    assert not request_of_a_run.context.HasField("actor")


async def test_tokens_and_address_come_with_the_request(
    request_of_a_run: run_pb2.RunRequest,
) -> None:
    access = request_of_a_run.host_access
    assert access.address == "unix:/run/host.sock"
    assert access.run_token
    assert access.instance_token
    assert access.run_token != access.instance_token


async def test_unknown_fields_are_added_at_every_depth(
    request_of_a_run: run_pb2.RunRequest,
) -> None:
    add_unknown_fields(request_of_a_run)
    parsed = run_pb2.RunRequest.FromString(request_of_a_run.SerializeToString())
    places: list[Message] = [
        parsed,
        parsed.context,
        parsed.context.input.parts[0],
        parsed.context.runtime,
        parsed.host_access,
    ]
    assert all(len(UnknownFieldSet(place)) == 1 for place in places)


async def test_unknown_numbers_are_set_wherever_an_enum_is(
    request_of_a_run: run_pb2.RunRequest,
) -> None:
    fill_up(request_of_a_run)
    set_unknown_numbers(request_of_a_run)
    context = request_of_a_run.context
    numbers = [
        context.event.source,
        context.trigger.source,
        context.context.inline_policy.mode,
        context.resources.files[0].source,
        context.resources.storage[0],
    ]
    assert numbers == [7_001] * 5


def test_a_configuration_has_defaults_made_up_values_and_what_was_chosen() -> None:
    manifest = manifest_pb2.RunnerManifest()
    for name, kind, required, default in (
        ("greeting", "string", False, '"hi"'),
        ("chat", "llm-model-selector", True, None),
        ("answering", "model-fallback-selector", False, None),
        ("depth", "integer", True, None),
        ("left_out", "string", False, None),
        ("chosen", "integer", False, "1"),
    ):
        manifest.config_schema.add(name=name, type=kind, required=required, default_json=default)
    manifest.config_schema[3].bounds.min = 3
    assert json.loads(config_json(manifest, {"chosen": 2})) == {
        "greeting": "hi",
        "chat": "conformance-model",
        "answering": {"primary": "conformance-model", "fallbacks": []},
        "depth": 3,
        "chosen": 2,
    }


def test_texts_are_what_a_host_passes_on() -> None:
    for text in TEXTS.values():
        assert "\0" not in text
        # A lone surrogate has no bytes in UTF-8.
        assert text.encode().decode() == text


def test_long_texts_have_the_size_that_was_asked_for() -> None:
    assert len(long_text(1_000).encode()) == 1_000
    assert 9_990 <= len(long_line(10_000).encode()) <= 10_000
    assert len(long_line(10_000).splitlines()) == 1
    assert len(long_text(1_900_000)) < Limits().event_bytes
