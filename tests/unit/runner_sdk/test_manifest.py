"""Manifests: what their YAML may say, and that each error names file, field and rule."""

from pathlib import Path
from textwrap import dedent

import pytest
from runmesh.v1 import manifest_pb2

from runner_sdk import Manifest, ManifestError

_PLUGIN = """
apiVersion: runmesh/v1
kind: Plugin
metadata: { author: acme, name: helpdesk, version: 1.2.0 }
run:
  python: { module: helpdesk.main }
components: [runner.yaml]
"""

_RUNNER = """
apiVersion: runmesh/v1
kind: AgentRunner
metadata: { name: default, label: Help desk }
"""


def _write(folder: Path, plugin: str = _PLUGIN, **runners: str) -> Path:
    (folder / "manifest.yaml").write_text(dedent(plugin), "utf-8")
    for name, text in (runners or {"runner": _RUNNER}).items():
        (folder / f"{name}.yaml").write_text(dedent(text), "utf-8")
    return folder


def test_a_whole_manifest_is_read(tmp_path: Path) -> None:
    runner = """
    apiVersion: runmesh/v1
    kind: AgentRunner
    metadata:
      name: default
      version: 2.0.0
      label: { en_US: Help desk, zh_Hans: 服务台 }
      description: Answers questions.
      notes: { team: support }
    capabilities: { streaming: true, interrupt: true, event_context: false }
    permissions:
      models: [invoke, stream]
      history: [page, search]
      artifacts: [create]
      storage: [plugin]
      platform_actions: [message.send]
    context_policy: { supports_history_search: true, owns_compaction: false }
    config_schema:
      - name: limit
        type: integer
        label: Limit
        default: 9007199254740993
        bounds: { min: 1 }
      - name: tone
        type: select
        label: { en_US: Tone }
        default: kind
        options:
          - { value: kind, label: Kind }
        shown_when: { field: limit, equals: 3 }
      - { name: note, type: json, label: Note, default: null }
    """
    manifest = Manifest.load(_write(tmp_path, runner=runner))

    assert (manifest.plugin_id, manifest.version) == ("acme/helpdesk", "1.2.0")
    read = manifest.runners["default"]
    assert (read.id, read.name) == ("plugin:acme/helpdesk/default", "default")
    assert (read.version, read.protocol_version) == ("2.0.0", "1")
    assert dict(read.label.text) == {"en_US": "Help desk", "zh_Hans": "服务台"}
    assert dict(read.description.text) == {"en_US": "Answers questions."}
    assert dict(read.metadata) == {"team": "support"}
    assert read.capabilities.streaming
    assert read.capabilities.HasField("event_context")
    assert not read.capabilities.HasField("self_managed_context")
    assert list(read.permissions.models) == [
        manifest_pb2.MODEL_PERMISSION_INVOKE,
        manifest_pb2.MODEL_PERMISSION_STREAM,
    ]
    assert list(read.permissions.storage) == [manifest_pb2.STORAGE_AREA_PLUGIN]
    assert list(read.permissions.platform_actions) == ["message.send"]
    assert read.context_policy.supports_history_search
    limit, tone, note = read.config_schema
    assert limit.default_json == "9007199254740993"
    assert limit.bounds.min == 1
    assert not limit.bounds.HasField("max")
    assert (tone.options[0].value, tone.shown_when.equals_json) == ("kind", "3")
    assert note.default_json == "null"


def test_a_runner_has_its_plugins_version_unless_it_says_otherwise(tmp_path: Path) -> None:
    assert Manifest.load(_write(tmp_path)).runners["default"].version == "1.2.0"


def test_the_nearest_manifest_above_a_source_file_is_found(tmp_path: Path) -> None:
    _write(tmp_path)
    source = tmp_path / "helpdesk" / "deep" / "main.py"
    source.parent.mkdir(parents=True)

    assert Manifest.find(source).plugin_id == "acme/helpdesk"


def test_a_source_file_without_a_manifest_above_it_is_an_error() -> None:
    with pytest.raises(ManifestError, match=r"no manifest\.yaml in a folder above it"):
        Manifest.find("/nowhere/main.py")


def test_components_of_other_kinds_are_left_to_others(tmp_path: Path) -> None:
    tool = "{ apiVersion: runmesh/v1, kind: Tool, metadata: { name: lookup } }"
    plugin = _PLUGIN.replace("[runner.yaml]", "[runner.yaml, tool.yaml]")

    assert list(Manifest.load(_write(tmp_path, plugin, runner=_RUNNER, tool=tool)).runners) == [
        "default"
    ]


@pytest.mark.parametrize(
    ("written", "instead", "field", "rule"),
    [
        ("runmesh/v1", "runmesh/v9", "apiVersion", "must be runmesh/v1, is 'runmesh/v9'"),
        ("kind: Plugin", "kind: Plug", "kind", "must be Plugin, is 'Plug'"),
        ("author: acme", "author: Acme", "metadata.author", "must match"),
        ("author: acme, ", "", "metadata.author", "is missing"),
        ("name: helpdesk", "name: 7", "metadata.name", "must be a text, is 7: quote it"),
        ("version: 1.2.0", "version: 1.2", "metadata.version", "must be a text, is 1.2: quote it"),
        ("version: 1.2.0", f"version: v{'1' * 64}", "metadata.version", "has 65 bytes"),
        ("[runner.yaml]", "runner.yaml", "components", "must be a list of files"),
        ("[runner.yaml]", "[../runner.yaml]", "components[0]", "a file in the plugin's folder"),
        ("[runner.yaml]", "[7]", "components[0]", "a file in the plugin's folder"),
        ("kind: Plugin", "kind: Plugin\nkind: Plugin", "line 4", "'kind' occurs twice"),
        ("kind: Plugin", "kind: [", "line", "is not readable as YAML"),
        (_PLUGIN, "- a list", "", "must be a mapping, is a list"),
        (_PLUGIN, "", "", "must be a mapping, is empty"),
    ],
)
def test_an_error_in_the_plugins_manifest_names_file_field_and_rule(
    tmp_path: Path, written: str, instead: str, field: str, rule: str
) -> None:
    _write(tmp_path, _PLUGIN.replace(written, instead))

    with pytest.raises(ManifestError) as caught:
        Manifest.load(tmp_path)

    assert caught.value.file == str(tmp_path / "manifest.yaml")
    assert caught.value.field.startswith(field)
    assert rule in caught.value.rule
    assert str(caught.value).startswith(f"{tmp_path / 'manifest.yaml'}: ")


_OPTIONS = "[{{ value: x, label: X }}]"
_CHOICE = f"config_schema: [{{{{ name: a, type: select, label: A, options: {_OPTIONS}, {{}} }}}}]"
_TEXT = "config_schema: [{{ name: a, type: text, label: A, {} }}]"
_FIELD = "config_schema: [{{ name: limit, type: integer, label: Limit, {} }}]"


@pytest.mark.parametrize(
    ("line", "field", "rule"),
    [
        ("capabilites: {}", "capabilites", "did you mean capabilities?"),
        ("zzz: {}", "zzz", "there is no such field; there are "),
        ("id: x", "id", "belongs into `metadata`, or follows from it"),
        ("capabilities: [streaming]", "capabilities", "must be a mapping, is a list"),
        ("capabilities: { streaming: 1 }", "capabilities.streaming", "must be true or false, is 1"),
        ("capabilities: { on: true }", "capabilities", "has the key True: write it in quotes"),
        ("permissions: { models: invoke }", "permissions.models", "must be a list, is 'invoke'"),
        (
            "permissions: { models: [invoke, run] }",
            "permissions.models[1]",
            "must be one of invoke, stream, rerank, embed; is 'run'",
        ),
        (
            "permissions: { platform_actions: [''] }",
            "permissions.platform_actions[0]",
            "must have 1 to 100 bytes, has 0",
        ),
        ("config_schema: [{ name: a, type: text }]", "config_schema[0].label", "is missing"),
        (
            "config_schema: [{ name: A, type: text, label: A }]",
            "config_schema[0].name",
            "must match [a-z][a-z0-9_]{0,63}, is 'A'",
        ),
        (
            "config_schema: [{ name: a, type: '', label: A }]",
            "config_schema[0].type",
            "must have 1 to 100 bytes",
        ),
        (
            "config_schema: [{ name: a, type: select, label: A }]",
            "config_schema[0].options",
            "a select needs choices",
        ),
        (
            "config_schema: [{ name: a, type: select, label: A, options: [{ value: x }] }]",
            "config_schema[0].options[0]",
            "needs a value and a label",
        ),
        (
            _CHOICE.format("default: y"),
            "config_schema[0].default",
            'must be among x; is "y"',
        ),
        (
            "config_schema: [{ name: a, type: text, label: A }, { name: a, type: text, label: A }]",
            "config_schema[1].name",
            "'a' is the name of a field before it",
        ),
        (_FIELD.format("default: many"), "config_schema[0].default", "must be a whole number"),
        (_FIELD.format("default: true"), "config_schema[0].default", "must be a whole number"),
        (
            _FIELD.format("default: 0, bounds: { min: 1 }"),
            "config_schema[0].default",
            "0 is outside the field's bounds",
        ),
        (
            _FIELD.format("bounds: { min: 2, max: 1 }"),
            "config_schema[0].bounds.min",
            "2 is more than max, 1",
        ),
        (_FIELD.format("bounds: { min: .nan }"), "config_schema[0].bounds", "must be finite"),
        (
            _FIELD.format("bounds: { max_length: -1 }"),
            "config_schema[0].bounds.max_length",
            "must not be negative, is -1",
        ),
        (
            _FIELD.format("bounds: { pattern: '(' }"),
            "config_schema[0].bounds.pattern",
            "is no regular expression",
        ),
        (
            _FIELD.format("shown_when: { field: other, equals: 1 }"),
            "config_schema[0].shown_when.field",
            "'other' is no field of the schema",
        ),
        (
            "config_schema: [{ name: a, type: json, label: A, default: 2026-01-01 }]",
            "config_schema[0].default",
            "not a JSON value",
        ),
        (
            _TEXT.format("default: x, bounds: { max_length: 0 }"),
            "config_schema[0].default",
            "is longer than max_length, 0",
        ),
    ],
)
def test_an_error_in_a_runners_manifest_names_file_field_and_rule(
    tmp_path: Path, line: str, field: str, rule: str
) -> None:
    _write(tmp_path, runner=_RUNNER + line)

    with pytest.raises(ManifestError) as caught:
        Manifest.load(tmp_path)

    assert caught.value.file == str(tmp_path / "runner.yaml")
    assert caught.value.field == field
    assert rule in caught.value.rule


@pytest.mark.parametrize(
    ("written", "instead", "field", "rule"),
    [
        ("name: default, ", "", "metadata.name", "is missing"),
        (", label: Help desk", "", "metadata.label", "people choose a runner by it"),
        ("label: Help desk", "label: 7", "metadata.label", "must be a mapping, is 7"),
        ("label: Help desk", "label: { en_US: 7 }", "metadata.label.en_US", "must be a text"),
        ("label:", "colour: red, label:", "metadata.colour", "there is no such field"),
    ],
)
def test_an_error_in_a_runners_head_names_file_field_and_rule(
    tmp_path: Path, written: str, instead: str, field: str, rule: str
) -> None:
    _write(tmp_path, runner=_RUNNER.replace(written, instead))

    with pytest.raises(ManifestError) as caught:
        Manifest.load(tmp_path)

    assert caught.value.field == field
    assert rule in caught.value.rule


def test_two_components_of_one_name_are_an_error(tmp_path: Path) -> None:
    plugin = _PLUGIN.replace("[runner.yaml]", "[runner.yaml, second.yaml]")
    _write(tmp_path, plugin, runner=_RUNNER, second=_RUNNER)

    with pytest.raises(ManifestError, match="'default' is the name of another component"):
        Manifest.load(tmp_path)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "manifest.yaml").write_text(_PLUGIN)
    with pytest.raises(ManifestError, match=r"runner\.yaml: cannot be read: No such file"):
        Manifest.load(tmp_path)


def test_a_file_that_is_not_utf_8_is_named(tmp_path: Path) -> None:
    (tmp_path / "manifest.yaml").write_bytes(b"kind: \xff")
    with pytest.raises(ManifestError, match="must be UTF-8: byte 6 is not"):
        Manifest.load(tmp_path)


def test_yaml_cannot_make_python_objects(tmp_path: Path) -> None:
    _write(tmp_path, _PLUGIN + "\nextra: !!python/object/apply:os.getcwd []\n")
    with pytest.raises(ManifestError, match="is not readable as YAML"):
        Manifest.load(tmp_path)


def test_a_minimal_manifest_needs_no_files() -> None:
    manifest = Manifest.minimal("acme/test", "one", "two")

    assert [runner.id for runner in manifest.runners.values()] == [
        "plugin:acme/test/one",
        "plugin:acme/test/two",
    ]
