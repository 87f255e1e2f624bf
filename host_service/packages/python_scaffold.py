"""Plugins in Python: what their things are called, and where their runners are served.

What the author wrote stays as it is: text is put in, and nothing is written anew.
"""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

from host_service.packages.errors import ScaffoldRefused
from host_service.packages.packing import PluginFolder
from host_service.packages.python_names import class_name, module_name, package_name
from host_service.supervisor.manifest import PythonModule
from runner_sdk import __version__ as sdk_version


class PythonScaffold:
    """Plugins in Python."""

    name = "python"

    def plugin_values(self, plugin: str) -> Mapping[str, str]:
        """See `ScaffoldLanguage`."""
        return {"package": package_name(plugin), "sdk_version": sdk_version}

    def runner_values(self, runner: str) -> Mapping[str, str]:
        """See `ScaffoldLanguage`."""
        return {"module": module_name(runner), "class": class_name(runner)}

    def further_files(self, plugin: str) -> Iterator[tuple[str, bytes]]:  # noqa: ARG002 - any plugin
        """Nothing: the SDK comes from the wheel that the host carries."""
        yield from ()

    def is_language_of(self, plugin: PluginFolder) -> bool:
        """See `ScaffoldLanguage`."""
        return isinstance(plugin.manifest.run, PythonModule)

    def package_of(self, plugin: PluginFolder) -> str:
        """See `ScaffoldLanguage`."""
        return _module(plugin).partition(".")[0]

    def served(self, plugin: PluginFolder, runner: str) -> tuple[Path, str]:
        """See `ScaffoldLanguage`."""
        main = plugin.path.joinpath(*_module(plugin).split(".")).with_suffix(".py")
        module = f"{self.package_of(plugin)}.{module_name(runner)}"
        return main, _served(main, module, class_name(runner))


def _module(plugin: PluginFolder) -> str:
    run = plugin.manifest.run
    return run.module if isinstance(run, PythonModule) else ""


def _served(main: Path, module: str, name: str) -> str:
    """The text of the main module with one more runner imported and served."""
    advice = f"import {name} from {module} there, and serve {name}()"
    try:
        source = main.read_text("utf-8")
        tree = ast.parse(source)
    except (OSError, UnicodeDecodeError, SyntaxError) as error:
        raise ScaffoldRefused(f"{main} cannot be read: {error}") from error
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _is_serve(node)]
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    if len(calls) != 1 or not imports:
        raise ScaffoldRefused(f"{main} has no import, or not exactly one serve(...)", advice)
    [call] = calls
    if any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(tree)):
        raise ScaffoldRefused(f"{main} uses the name {name} already", "choose another name")
    lines = source.encode().splitlines(keepends=True)
    if call.args:
        last = call.args[-1]
        _insert(lines, last.end_lineno, last.end_col_offset, f", {name}()")
    else:
        comma = ", " if call.keywords else ""
        line, column = call.func.end_lineno, call.func.end_col_offset
        opening = lines[(line or 1) - 1].find(b"(", column or 0)
        _insert(lines, line, opening + 1, f"{name}(){comma}")
    # After the call was changed: a line more before it would move it.
    lines.insert(imports[-1].end_lineno or 1, f"from {module} import {name}\n".encode())
    text = b"".join(lines).decode()
    ast.parse(text)
    return text


def _is_serve(call: ast.Call) -> bool:
    function = call.func
    return (isinstance(function, ast.Name) and function.id == "serve") or (
        isinstance(function, ast.Attribute) and function.attr == "serve"
    )


def _insert(lines: list[bytes], line: int | None, column: int | None, text: str) -> None:
    """Puts text into a line; the syntax tree counts columns in bytes."""
    index, place = (line or 1) - 1, column or 0
    lines[index] = lines[index][:place] + text.encode() + lines[index][place:]
