"""What the SDK offers, and what it costs to import."""

import ast
import subprocess
import sys
from pathlib import Path

import runner_sdk
import runner_sdk.errors
import runner_sdk.testing

_FOLDER = Path(runner_sdk.__file__).parent


def test_the_public_names_are_few_and_sorted() -> None:
    assert runner_sdk.__all__ == sorted(runner_sdk.__all__)
    assert runner_sdk.testing.__all__ == sorted(runner_sdk.testing.__all__)
    assert len(runner_sdk.__all__) <= 13
    assert all(hasattr(runner_sdk, name) for name in runner_sdk.__all__)


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
