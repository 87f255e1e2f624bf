"""Tests of `host_service.registry.manifest_check`."""

from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf import text_format
from runmesh.v1 import manifest_pb2, types_pb2

from host_service.registry.manifest_check import check_manifests

COMPLETE = """
id: "plugin:acme/desk/default"
name: "default"
label { text { key: "en_US" value: "Desk" } }
protocol_version: "1"
version: "1.0.0"
permissions { models: MODEL_PERMISSION_INVOKE platform_actions: "message.send" }
config_schema {
  name: "model" type: "llm-model-selector" label { text { key: "en_US" value: "Model" } }
}
config_schema {
  name: "tone" type: "select" label { text { key: "en_US" value: "Tone" } }
  default_json: "\\"kind\\""
  options { value: "kind" label { text { key: "en_US" value: "Kind" } } }
  bounds { min: 1 max: 2 max_length: 10 }
  shown_when { field: "model" equals_json: "{\\"a\\": [1, 2]}" }
}
metadata { key: "team" value: "support" }
"""

Change = Callable[[manifest_pb2.RunnerManifest], None]


def complete() -> manifest_pb2.RunnerManifest:
    return text_format.Parse(COMPLETE, manifest_pb2.RunnerManifest())


def set_field(path: str, value: object) -> Change:
    def change(manifest: manifest_pb2.RunnerManifest) -> None:
        *owners, name = path.split(".")
        target: Any = manifest
        for owner in owners:
            target = target[int(owner)] if owner.isdigit() else getattr(target, owner)
        setattr(target, name, value)

    return change


def deep_json(levels: int) -> str:
    return "[" * levels + "]" * levels


def test_complete_manifest_is_accepted() -> None:
    check = check_manifests("acme/desk", [complete()])
    assert [each.id for each in check.accepted] == ["plugin:acme/desk/default"]
    assert check.faults == ()
    assert check.warnings == ()


@pytest.mark.parametrize(
    ("change", "field", "rule"),
    [
        (set_field("id", "acme/desk/default"), "id", "got 'acme/desk/default'"),
        (set_field("id", "plugin:acme/desk/Default"), "id", "plugin:author/name/runner"),
        (set_field("id", "plugin:evil/desk/default"), "id", "of the plugin 'acme/desk'"),
        (set_field("name", "other"), "name", "'default', got 'other'"),
        (set_field("version", ""), "version", "1 to 64 bytes, got 0"),
        (set_field("version", "9" * 65), "version", "got 65"),
        (set_field("protocol_version", "2"), "protocol_version", "must be 1, got '2'"),
        (lambda each: each.ClearField("label"), "label", "at least one language"),
        (
            lambda each: each.label.CopyFrom(types_pb2.LocalizedText(text={"en_US": "a\0b"})),
            "label.text['en_US']",
            "U+0000",
        ),
        (
            lambda each: each.permissions.platform_actions.append("x" * 101),
            "permissions.platform_actions[1]",
            "got 101",
        ),
        (lambda each: each.metadata.update({"k": "v" * 1025}), "metadata['k']", "got 1025"),
        (
            lambda each: each.metadata.update({str(n): "" for n in range(64)}),
            "metadata",
            "at most 64 entries, got 65",
        ),
        (set_field("config_schema.1.name", "Tone"), "config_schema[1].name", "got 'Tone'"),
        (set_field("config_schema.0.type", ""), "config_schema[0].type", "1 to 100 bytes"),
        (
            lambda each: each.config_schema[0].ClearField("label"),
            "config_schema[0].label",
            "at least one language",
        ),
        (
            set_field("config_schema.1.default_json", "NaN"),
            "config_schema[1].default_json",
            "NaN is no JSON number",
        ),
        (
            set_field("config_schema.1.default_json", '{"a":1,"a":2}'),
            "config_schema[1].default_json",
            "a name twice",
        ),
        (
            set_field("config_schema.1.default_json", deep_json(65)),
            "config_schema[1].default_json",
            "at most 64 deep",
        ),
        (
            set_field("config_schema.1.default_json", deep_json(100_000)),
            "config_schema[1].default_json",
            "must be one JSON value",
        ),
        (
            lambda each: each.config_schema[1].ClearField("options"),
            "config_schema[1].options",
            "at least one choice",
        ),
        (
            lambda each: each.config_schema[1].options.append(each.config_schema[1].options[0]),
            "config_schema[1].options[1].value",
            "'kind' came before",
        ),
        (set_field("config_schema.1.bounds.min", 3.0), "config_schema[1].bounds", "3.0 and 2.0"),
        (
            set_field("config_schema.1.bounds.max_length", -1),
            "config_schema[1].bounds.max_length",
            "got -1",
        ),
        (
            set_field("config_schema.1.shown_when.field", "absent"),
            "config_schema[1].shown_when.field",
            "got 'absent'",
        ),
        (
            set_field("config_schema.1.shown_when.equals_json", "kind"),
            "config_schema[1].shown_when.equals_json",
            "one JSON value",
        ),
    ],
)
def test_broken_rule_is_named_with_its_field(change: Change, field: str, rule: str) -> None:
    manifest = complete()
    change(manifest)
    check = check_manifests("acme/desk", [manifest])
    assert check.accepted == ()
    assert [(fault.plugin_id, fault.field) for fault in check.faults] == [("acme/desk", field)]
    assert rule in check.faults[0].rule


def test_json_may_be_as_deep_as_the_contract_says() -> None:
    manifest = complete()
    manifest.config_schema[1].default_json = deep_json(64)
    assert check_manifests("acme/desk", [manifest]).accepted


def test_two_fields_of_one_name_are_refused() -> None:
    manifest = complete()
    manifest.config_schema[1].name = "model"
    manifest.config_schema[1].shown_when.field = "other"
    fields = [fault.field for fault in check_manifests("acme/desk", [manifest]).faults]
    assert "config_schema[1].name" in fields


def test_bad_manifest_costs_only_itself() -> None:
    bad = complete()
    bad.id, bad.name = "plugin:acme/desk/bad", "other"
    check = check_manifests("acme/desk", [bad, complete()])
    assert [each.name for each in check.accepted] == ["default"]
    assert [fault.runner_id for fault in check.faults] == ["plugin:acme/desk/bad"]


def test_second_manifest_of_one_id_is_refused() -> None:
    check = check_manifests("acme/desk", [complete(), complete()])
    assert len(check.accepted) == 1
    assert "must be unique" in check.faults[0].rule


def test_what_a_newer_plugin_says_is_kept_with_a_warning() -> None:
    manifest = complete()
    manifest.permissions.models.append(manifest_pb2.ModelPermission.ValueType(77))
    manifest.config_schema[0].type = "colour-picker"
    newer = manifest_pb2.RunnerManifest.FromString(
        # Field 900, a text.
        manifest.SerializeToString() + b"\xa2\x38\x03new"
    )
    check = check_manifests("acme/desk", [newer])
    assert check.faults == ()
    assert check.accepted[0].SerializeToString() == newer.SerializeToString()
    assert len(check.warnings) == 3
    assert "config_schema[0].type 'colour-picker' is not known" in check.warnings[0]
    assert "permissions.models[1] has the number 77" in check.warnings[1]
    assert "has field 900, which this host does not know" in check.warnings[2]
