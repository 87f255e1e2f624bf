"""Adds another runner to a plugin: its files, its line in the manifest, its place in `serve(...)`.

What the author wrote stays as it is: text is put in, and nothing is written anew. All of it is
decided before the first file is made.
"""

import ast
from pathlib import Path
from typing import Any

import yaml

from host_service.packages.errors import ScaffoldRefused
from host_service.packages.packing import PluginFolder
from host_service.packages.python_names import class_name, module_name
from host_service.packages.scaffold import checked_name, runner_texts
from host_service.supervisor.manifest import PythonModule

_LANGUAGE = "python"


def add_runner(plugin: PluginFolder, runner: str) -> list[Path]:
    """Adds a runner to a plugin.

    Args:
        plugin: The plugin.
        runner: The runner's name: the last part of its id.

    Returns:
        The files that were made or changed.

    Raises:
        ScaffoldRefused: It cannot be added; nothing was changed.
        OSError: A file cannot be written.
    """
    checked_name(runner, "a runner")
    run = plugin.manifest.run
    if not isinstance(run, PythonModule):
        raise ScaffoldRefused(
            "runners can only be added to plugins in Python",
            "write a file of kind AgentRunner, and list it in the manifest's components",
        )
    if runner in plugin.runners.runners:
        raise ScaffoldRefused(f"there is a runner named {runner!r} already")
    package = run.module.partition(".")[0]
    main = plugin.path.joinpath(*run.module.split(".")).with_suffix(".py")
    texts = dict(runner_texts(_LANGUAGE, runner, {"package": package}))
    component = next(place for place in texts if place.endswith(".yaml"))
    for place in texts:
        if (plugin.path / place).exists():
            raise ScaffoldRefused(f"{plugin.path / place} is there already", "choose another name")
    manifest = plugin.path / "manifest.yaml"
    changed = {
        main: _served(main, f"{package}.{module_name(runner)}", class_name(runner)),
        manifest: _listed(manifest, component),
    }
    for place, text in texts.items():
        path = plugin.path / place
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    for path, text in changed.items():
        _replace(path, text)
    return [*(plugin.path / place for place in texts), *changed]


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


def _listed(manifest: Path, component: str) -> str:
    """The text of the manifest with one more component."""
    text = manifest.read_text("utf-8")
    before: dict[str, Any] = yaml.safe_load(text)
    node = _components_node(text)
    if node is None:
        changed = f"{text.rstrip()}\ncomponents:\n  - {component}\n"
    elif node.flow_style:
        place = node.value[-1].end_mark.index if node.value else node.start_mark.index + 1
        comma = ", " if node.value else ""
        changed = f"{text[:place]}{comma}{component}{text[place:]}"
    else:
        lines = text.splitlines(keepends=True)
        last = node.value[-1].end_mark.line
        lines[last] = f"{lines[last].rstrip()}\n"
        lines.insert(last + 1, f"{' ' * node.start_mark.column}- {component}\n")
        changed = "".join(lines)
    expected = {**before, "components": [*(before.get("components") or []), component]}
    if yaml.safe_load(changed) != expected:
        raise ScaffoldRefused(
            f"{manifest} is written in a way that cannot be added to",
            f"list {component} in its components by hand",
        )
    return changed


def _components_node(text: str) -> yaml.SequenceNode | None:
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    for key, value in root.value if isinstance(root, yaml.MappingNode) else ():
        if key.value == "components" and isinstance(value, yaml.SequenceNode):
            return value
    return None


def _replace(path: Path, text: str) -> None:
    """Writes a file anew so that a host that looks meanwhile sees the old or the new one."""
    new = path.with_name(f".{path.name}.new")
    new.write_text(text, "utf-8")
    new.chmod(path.stat().st_mode)
    new.replace(path)
