"""Tests of `host_service.runs.asked`: a manifest in the words that rights go by."""

import pytest
from runmesh.v1 import manifest_pb2

from host_service.runs.asked import asked_by

ALL = manifest_pb2.RunnerManifest(
    capabilities=manifest_pb2.RunnerCapabilities(
        streaming=True,
        tool_calling=True,
        knowledge_retrieval=True,
        multimodal_input=True,
        skill_authoring=True,
        event_context=True,
        platform_api=True,
        interrupt=True,
        steering=True,
        stateful_session=True,
        self_managed_context=True,
    ),
    permissions=manifest_pb2.RunnerPermissions(
        models=[number for number in manifest_pb2.ModelPermission.values() if number],
        tools=[number for number in manifest_pb2.ToolPermission.values() if number],
        knowledge_bases=[n for n in manifest_pb2.KnowledgeBasePermission.values() if n],
        history=[number for number in manifest_pb2.HistoryPermission.values() if number],
        events=[number for number in manifest_pb2.EventPermission.values() if number],
        artifacts=[number for number in manifest_pb2.ArtifactAccess.values() if number],
        storage=[number for number in manifest_pb2.StorageArea.values() if number],
        files=[number for number in manifest_pb2.FileSource.values() if number],
        platform_actions=["message.send"],
    ),
)


def test_everything_that_can_be_asked_for_has_the_contracts_word() -> None:
    asked = asked_by(ALL)
    assert asked.permissions == {
        "models": {"invoke", "stream", "rerank", "embed"},
        "tools": {"detail", "call"},
        "knowledge_bases": {"list", "retrieve"},
        "history": {"page", "search"},
        "events": {"get", "page"},
        "artifacts": {"metadata", "read", "create"},
        "files": {"config", "knowledge"},
    }
    assert asked.storage == {"plugin", "workspace", "binding"}
    assert asked.actions == {"message.send"}
    assert asked.capabilities == {
        field.name for field in manifest_pb2.RunnerCapabilities.DESCRIPTOR.fields
    }


def test_manifest_that_says_nothing_asks_for_nothing_and_has_the_default_capabilities() -> None:
    asked = asked_by(manifest_pb2.RunnerManifest())
    assert not any(asked.permissions.values())
    assert (asked.storage, asked.actions) == (frozenset(), frozenset())
    assert asked.capabilities == {"event_context", "self_managed_context"}


def test_capability_that_is_on_by_default_can_be_said_to_be_off() -> None:
    capabilities = manifest_pb2.RunnerCapabilities(event_context=False, steering=True)
    asked = asked_by(manifest_pb2.RunnerManifest(capabilities=capabilities))
    assert asked.capabilities == {"self_managed_context", "steering"}


def test_values_of_a_later_version_ask_for_nothing() -> None:
    permissions = manifest_pb2.RunnerPermissions.FromString(
        # history: 1 (page), 0 and 77; storage: 99.
        b"\x22\x03\x01\x00\x4d\x3a\x01\x63"
    )
    asked = asked_by(manifest_pb2.RunnerManifest(permissions=permissions))
    assert asked.permissions["history"] == {"page"}
    assert asked.storage == frozenset()


def test_what_is_asked_for_cannot_be_changed_for_later_runs() -> None:
    asked = asked_by(ALL)
    with pytest.raises(TypeError):
        asked.permissions["models"] = frozenset()  # type: ignore[index]  # it must not
    assert asked_by(ALL).permissions["models"]
