"""Plugins in TypeScript: what their things are called, where their runners are served, their SDK.

The SDK is published nowhere: a plugin has its sources in `vendor/runmesh-sdk`, a workspace of the
plugin's package, and compiles them with its own.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from host_service.packages.carried_sdk import carried_sdk
from host_service.packages.errors import ScaffoldRefused
from host_service.packages.packing import PluginFolder
from host_service.supervisor.manifest import Command

_SDK_PLACE = "vendor/runmesh-sdk"
_MAIN = "src/main.ts"
_IMPORT = re.compile(r"^import\b[^;]*;$", re.MULTILINE)
_RUNNERS = re.compile(r"\breadPlugin\([^{}]*\{")


class TypeScriptScaffold:
    """Plugins in TypeScript."""

    name = "typescript"

    def plugin_values(self, plugin: str) -> Mapping[str, str]:
        """See `ScaffoldLanguage`."""
        text = (carried_sdk(self.name) / "package.json").read_text("utf-8")
        sdk: dict[str, Any] = json.loads(text)
        tools = sdk["devDependencies"]
        return {
            "package": plugin,
            "sdk_version": sdk["version"],
            "types_version": tools["@types/node"],
            "typescript_version": tools["typescript"],
        }

    def runner_values(self, runner: str) -> Mapping[str, str]:
        """See `ScaffoldLanguage`."""
        return {"module": _file_name(runner), "function": _function_name(runner)}

    def further_files(self, plugin: str) -> Iterator[tuple[str, bytes]]:  # noqa: ARG002 - as all languages have it
        """The SDK's sources, without its tests."""
        sdk = carried_sdk(self.name)
        own = [sdk / "README.md", sdk / "package.json", sdk / "tsconfig.json"]
        sources = (path for path in (sdk / "src").rglob("*.ts") if path.parent.name != "test")
        for path in sorted([*own, *sources]):
            yield f"{_SDK_PLACE}/{path.relative_to(sdk).as_posix()}", path.read_bytes()

    def is_language_of(self, plugin: PluginFolder) -> bool:
        """See `ScaffoldLanguage`."""
        return isinstance(plugin.manifest.run, Command) and (plugin.path / _MAIN).is_file()

    def package_of(self, plugin: PluginFolder) -> str:
        """See `ScaffoldLanguage`."""
        return plugin.manifest.name

    def served(self, plugin: PluginFolder, runner: str) -> tuple[Path, str]:
        """See `ScaffoldLanguage`."""
        main = plugin.path / _MAIN
        function, module = _function_name(runner), _file_name(runner)
        entry = f"{runner if re.fullmatch('[a-z]+', runner) else json.dumps(runner)}: {function}"
        try:
            text = main.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ScaffoldRefused(f"{main} cannot be read: {error}") from error
        imports, found = list(_IMPORT.finditer(text)), list(_RUNNERS.finditer(text))
        end = text.find("}", found[0].end()) if len(found) == 1 else -1
        inside = text[found[0].end() : end] if end >= 0 else ""
        if end < 0 or "{" in inside or not imports or imports[-1].end() > found[0].start():
            raise ScaffoldRefused(
                f"{main} has no import, or not exactly one plain readPlugin(..., {{...}})",
                f"import {function} from ./{module}.js there, and put {entry} among the runners",
            )
        if re.search(rf"\b{function}\b", text):
            raise ScaffoldRefused(f"{main} uses the name {function} already", "choose another name")
        before = text[:end].rstrip().removesuffix(",") + ("," if inside.strip() else "")
        added = f"\n    {entry},\n  " if "\n" in inside else f" {entry} "
        place = imports[-1].end()
        line = f'\nimport {{ {function} }} from "./{module}.js";'
        return main, f"{text[:place]}{line}{before[place:]}{added}{text[end:]}"


def _file_name(runner: str) -> str:
    """The file of a runner, without its ending: a dot would make it a test, or another kind."""
    name = runner.replace(".", "-")
    return f"{name}-runner" if name == "main" else name


def _function_name(runner: str) -> str:
    """A runner as a function: `second-opinion` is `runSecondOpinion`."""
    words = re.split(r"[._-]+", runner)
    return "run" + "".join(word[:1].upper() + word[1:] for word in words)
