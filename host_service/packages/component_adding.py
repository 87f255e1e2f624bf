"""Adds another runner to a plugin: its files, its line in the manifest, its place in the code.

What the author wrote stays as it is: text is put in, and nothing is written anew. All of it is
decided before the first file is made.
"""

from pathlib import Path
from typing import Any

import yaml

from host_service.packages.errors import ScaffoldRefused
from host_service.packages.packing import PluginFolder
from host_service.packages.scaffold import LANGUAGES, checked_name, runner_texts


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
    language = next((each for each in LANGUAGES if each.is_language_of(plugin)), None)
    if language is None:
        known = ", ".join(each.name for each in LANGUAGES)
        raise ScaffoldRefused(
            f"runners can only be added to plugins that 'runmesh init' makes: {known}",
            "write a file of kind AgentRunner, and list it in the manifest's components",
        )
    if runner in plugin.runners.runners:
        raise ScaffoldRefused(f"there is a runner named {runner!r} already")
    texts = dict(runner_texts(language, runner, {"package": language.package_of(plugin)}))
    component = next(place for place in texts if place.endswith(".yaml"))
    for place in texts:
        if (plugin.path / place).exists():
            raise ScaffoldRefused(f"{plugin.path / place} is there already", "choose another name")
    manifest = plugin.path / "manifest.yaml"
    main, served = language.served(plugin, runner)
    changed = {main: served, manifest: _listed(manifest, component)}
    for place, text in texts.items():
        path = plugin.path / place
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    for path, text in changed.items():
        _replace(path, text)
    return [*(plugin.path / place for place in texts), *changed]


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
