"""Tests of `host_service.supervisor.manifest`."""

import logging
from pathlib import Path

import pytest

from host_service.supervisor.errors import ManifestInvalid
from host_service.supervisor.manifest import Command, Limits, PythonModule, read_manifest

COMPLETE = """\
apiVersion: runmesh/v1
kind: Plugin
metadata: { author: acme, name: helpdesk, version: 1.2.0, label: { en_US: Help desk } }
run:
  python: { module: helpdesk.main }
  env: [HELPDESK_URL]
  limits: { open_files: 256, cpu: 1.5, memory: 512MiB }
components:
  - components/agent_runner/default.yaml
"""


def write(folder: Path, text: str) -> Path:
    (folder / "manifest.yaml").write_text(text, "utf-8")
    return folder


def faults(folder: Path, text: str) -> dict[str, str]:
    with pytest.raises(ManifestInvalid) as raised:
        read_manifest(write(folder, text))
    prefix = f"{folder.name}/manifest.yaml"
    return {
        fault.field.removeprefix(prefix).removeprefix(": "): fault.rule
        for fault in raised.value.faults
    }


def test_complete_manifest_is_read(tmp_path: Path) -> None:
    manifest = read_manifest(write(tmp_path, COMPLETE))
    assert manifest.plugin_id == "acme/helpdesk"
    assert manifest.version == "1.2.0"
    assert manifest.run == PythonModule("helpdesk.main")
    assert manifest.env == ("HELPDESK_URL",)
    assert manifest.limits == Limits(open_files=256, cpu=1.5, memory_bytes=512 * 2**20)
    assert manifest.components == ("components/agent_runner/default.yaml",)
    assert manifest.label == {"en_US": "Help desk"}


def test_command_is_read_word_by_word(tmp_path: Path) -> None:
    text = COMPLETE.replace("python: { module: helpdesk.main }", 'command: ["./bin/desk", "-v"]')
    assert read_manifest(write(tmp_path, text)).run == Command(("./bin/desk", "-v"))


def test_commands_of_whoever_works_on_it_are_read(tmp_path: Path) -> None:
    commands = "command: [./bin/desk]\n  build: go build -o bin/ .\n  test: go test ./..."
    text = COMPLETE.replace("python: { module: helpdesk.main }", commands)
    run = read_manifest(write(tmp_path, text)).run
    assert run == Command(("./bin/desk",), build="go build -o bin/ .", test="go test ./...")
    broken = text.replace("go build -o bin/ .", "[go, build]").replace("go test ./...", "''")
    told = faults(tmp_path, broken)
    assert set(told) == {"run.build", "run.test"}
    python = COMPLETE.replace("  env:", "  build: make\n  env:")
    assert "needs none" in faults(tmp_path, python)["run.build"]


@pytest.mark.parametrize(
    ("old", "new", "field", "rule"),
    [
        ("runmesh/v1", "runmesh/v9", "apiVersion", "runmesh/v1"),
        ("kind: Plugin", "kind: Agent", "kind", "'Agent'"),
        ("author: acme", "author: Acme Corp", "metadata.author", "'Acme Corp'"),
        ("name: helpdesk, ", "", "metadata.name", "got nothing"),
        ("version: 1.2.0", "version: 1.2", "metadata.version", "put it in quotes"),
        ("{ en_US: Help desk }", "Help desk", "metadata.label", "locale"),
        ("{ en_US: Help desk }", "{ en_US: 5 }", "metadata.label.en_US", "5 (int)"),
        ("python: { module: helpdesk.main }", "shell: x", "run", "got none"),
        ("python: { module: helpdesk.main }", "command: run me", "run.command", "list"),
        ("python: { module: helpdesk.main }", "command: [a, 7]", "run.command[1]", "7 (int)"),
        ("module: helpdesk.main", "module: ../x", "run.python.module", "'../x'"),
        ("env: [HELPDESK_URL]", "env: HELPDESK_URL", "run.env", "must be a list"),
        ("env: [HELPDESK_URL]", "env: [A=B]", "run.env[0]", "'A=B'"),
        ("env: [HELPDESK_URL]", "env: [RUNMESH_DATA]", "run.env[0]", "the host's own"),
        ("open_files: 256", "open_files: true", "run.limits.open_files", "True (bool)"),
        ("open_files: 256", "open_files: 3", "run.limits.open_files", "from 32"),
        ("cpu: 1.5", "cpu: -1", "run.limits.cpu", "-1 (int)"),
        ("memory: 512MiB", "memory: lots", "run.limits.memory", "'lots'"),
        ("components/agent", "../agent", "components[0]", "within the folder"),
        ("- components", "- /components", "components[0]", "within the folder"),
    ],
)
def test_broken_rule_is_named_with_field_and_value(
    tmp_path: Path, old: str, new: str, field: str, rule: str
) -> None:
    assert old in COMPLETE
    found = faults(tmp_path, COMPLETE.replace(old, new))
    assert list(found) == [field]
    assert rule in found[field]


def test_all_broken_rules_are_named_at_once(tmp_path: Path) -> None:
    text = COMPLETE.replace("acme", "A!").replace("1.5", "none").replace("kind: Plugin", "kind: X")
    assert faults(tmp_path, text).keys() == {"kind", "metadata.author", "run.limits.cpu"}


def test_fault_names_the_plugin_as_far_as_it_is_known(tmp_path: Path) -> None:
    for text, expected in [
        (COMPLETE.replace("cpu: 1.5", "cpu: 0"), "acme/helpdesk"),
        (COMPLETE.replace("acme", "A!"), tmp_path.name),
    ]:
        with pytest.raises(ManifestInvalid) as raised:
            read_manifest(write(tmp_path, text))
        assert {fault.plugin_id for fault in raised.value.faults} == {expected}


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("a: [", "must be YAML"),
        ("- 1\n- 2\n", "must be a mapping, got [1, 2] (list)"),
        ("", "must be a mapping, got nothing"),
        ("kind: Plugin\nkind: Plugin\n", "key 'kind' comes twice"),
        ("- " * 2_000, "must be YAML"),
        ("x" * 70_000, "at most 65536 bytes"),
        ("!!python/object/apply:os.getpid []", "must be YAML"),
    ],
)
def test_what_is_no_manifest_at_all_is_one_fault(tmp_path: Path, text: str, rule: str) -> None:
    found = faults(tmp_path, text)
    assert list(found) == [""]
    assert rule in found[""]


def test_manifest_that_is_not_utf_8_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "manifest.yaml").write_bytes("kind: 插件".encode("gbk"))
    with pytest.raises(ManifestInvalid, match="must be UTF-8"):
        read_manifest(tmp_path)


def test_unknown_field_is_told_and_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = COMPLETE.replace("limits:", "limit: 5\n  limits:")
    with caplog.at_level(logging.WARNING):
        assert read_manifest(write(tmp_path, text)).limits.open_files == 256
    assert "run.limit is not known here" in caplog.text


def test_two_limits_are_the_smaller_of_each() -> None:
    one = Limits(open_files=100, memory_bytes=5)
    other = Limits(open_files=50, cpu=2.0, memory_bytes=9)
    assert one.within(other) == Limits(open_files=50, cpu=2.0, memory_bytes=5)
