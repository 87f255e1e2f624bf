"""The plugin is an ordinary one: what it asks for, and what it is made of."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from local_agent.settings import Settings
from runmesh.v1 import manifest_pb2 as contract

from runner_sdk import Manifest

_PLUGINS = Path(__file__).parents[3] / "plugins"
_FOLDER = _PLUGINS / "local-agent"


def test_it_asks_for_what_it_uses_and_for_nothing_else() -> None:
    manifest = Manifest.load(_FOLDER).runners["default"]

    assert manifest.id == "plugin:runmesh/local-agent/default"
    assert manifest.permissions == contract.RunnerPermissions(
        models=[
            contract.MODEL_PERMISSION_INVOKE,
            contract.MODEL_PERMISSION_STREAM,
            contract.MODEL_PERMISSION_RERANK,
        ],
        tools=[contract.TOOL_PERMISSION_DETAIL, contract.TOOL_PERMISSION_CALL],
        knowledge_bases=[contract.KNOWLEDGE_BASE_PERMISSION_RETRIEVE],
        history=[contract.HISTORY_PERMISSION_PAGE, contract.HISTORY_PERMISSION_SEARCH],
        artifacts=[contract.ARTIFACT_ACCESS_READ],
    )


def test_every_field_has_a_label_in_both_languages() -> None:
    for field in Manifest.load(_FOLDER).runners["default"].config_schema:
        assert set(field.label.text) == {"en_US", "zh_Hans"}, field.name


@pytest.mark.parametrize(
    ("chosen", "ids"),
    [
        ("a", ("a",)),
        ({"primary": "a", "fallbacks": ["b", "a", "", "__none__", "c"]}, ("a", "b", "c")),
        ({"primary": "", "fallbacks": ["b"]}, ("b",)),
        ({"primary": "a", "fallbacks": None}, ("a",)),
        ("__none", ()),
        (None, ()),
    ],
)
def test_models_are_the_primary_and_its_fallbacks_each_once(
    chosen: object, ids: tuple[str, ...]
) -> None:
    assert Settings.of({"model": chosen}).model_ids == ids


def test_temperature_of_its_own_field_gives_way_to_that_of_the_arguments() -> None:
    config = {"temperature": 0.1, "extra_args": {"temperature": 0.9}}
    assert Settings.of(config).extra_args == {"temperature": 0.9}


@pytest.mark.parametrize(
    "plugin", sorted(each.parent.name for each in _PLUGINS.glob("*/manifest.yaml"))
)
def test_shipped_plugin_uses_only_the_sdk_and_the_contract(plugin: str) -> None:
    files = sorted((_PLUGINS / plugin).rglob("*.py"))
    allowed = {"runner_sdk", "runmesh", "google"} | set(sys.stdlib_module_names)
    assert files
    assert [
        f"{file.name}: {name}" for file in files for name in _imports(file) if name not in allowed
    ] == []


def _imports(file: Path) -> Iterator[str]:
    """The packages that a file imports, but for its own."""
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (each.name.partition(".")[0] for each in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            module = (node.module or "").split(".")
            yield module[0]
            # What begins with an underscore is the SDK's own.
            yield from (f"{node.module}" for part in module if part.startswith("_"))
