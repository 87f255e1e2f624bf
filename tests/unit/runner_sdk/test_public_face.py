"""What the SDK offers, and what it costs to import."""

import ast
import inspect
import subprocess
import sys
import typing
from pathlib import Path
from typing import Any

import runner_sdk
import runner_sdk.errors
import runner_sdk.host
import runner_sdk.testing
from runner_sdk import HostClient

_FOLDER = Path(runner_sdk.__file__).parent


def test_the_public_names_are_few_and_sorted() -> None:
    for module in (runner_sdk, runner_sdk.host, runner_sdk.testing):
        assert module.__all__ == sorted(module.__all__)
        assert all(hasattr(module, name) for name in module.__all__)
    assert len(runner_sdk.__all__) <= 13


def test_what_the_clients_give_and_are_can_be_named_in_annotations() -> None:
    clients = [value for value in vars(HostClient).values() if isinstance(value, property)]
    given = {
        annotation
        for client in clients
        for name, method in vars(_returned(client.fget)).items()
        if inspect.isfunction(method) and not name.startswith("_")
        for annotation in [_returned(method)]
        if annotation.__module__.startswith("runner_sdk.")
    }
    kinds = {_returned(client.fget) for client in clients} - {str}

    assert {kind.__name__ for kind in given | kinds} <= set(runner_sdk.host.__all__)


def _returned(function: Any) -> Any:
    kind = typing.get_type_hints(function).get("return")
    return kind if isinstance(kind, type) else type(None)


def test_the_tree_of_errors_is_drawn_as_it_is() -> None:
    assert runner_sdk.errors.__doc__ is not None
    drawn = {
        line.split("+--")[1].split()[0]
        for line in runner_sdk.errors.__doc__.splitlines()
        if "+--" in line
    }
    classes = {
        name
        for name, value in vars(runner_sdk.errors).items()
        if isinstance(value, type) and issubclass(value, runner_sdk.errors.SdkError)
    }
    assert drawn == classes - {"SdkError"}


def test_the_sdk_imports_nothing_of_the_host() -> None:
    for path in _FOLDER.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            tops = {name.partition(".")[0] for name in names}
            assert not tops & {"host_service", "stores", "plugins", "tests"}, path


def test_importing_loads_nothing_that_can_wait() -> None:
    late = {"yaml", "google.rpc.status_pb2", "runner_sdk.testing", "opentelemetry.sdk", "ctypes"}
    code = f"import sys, runner_sdk; print(sorted({late!r} & set(sys.modules)))"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
