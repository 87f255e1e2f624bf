"""Plugins in Go: what their things are called, where their runners are served, and their SDK.

The SDK is published nowhere: a plugin has it in `third_party/runmesh`, and its `go.mod` says so.
"""

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from host_service.packages.carried_sdk import carried_sdk
from host_service.packages.errors import ScaffoldRefused
from host_service.packages.packing import PluginFolder
from host_service.supervisor.manifest import Command

_SDK_MODULE = "github.com/runmesh/runmesh/sdk/go"
_SDK_PLACE = "third_party/runmesh"
_MAIN = "main.go"
# Names that no element of a module's path may have: devices of one operating system.
_DEVICES = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?")
_RUNNERS = re.compile(r"map\[string\]runmesh\.Runner\{")
_REQUIRED = re.compile(r"^\t(\S+ v\S+)", re.MULTILINE)
_FORMAT_SECONDS = 30.0


class GoScaffold:
    """Plugins in Go."""

    name = "go"

    def plugin_values(self, plugin: str) -> Mapping[str, str]:
        """See `ScaffoldLanguage`."""
        return {"package": plugin}

    def runner_values(self, runner: str) -> Mapping[str, str]:
        """See `ScaffoldLanguage`."""
        title = _title(runner)
        return {"module": _file_name(runner), "title": title, "function": f"run{title}"}

    def further_files(self, plugin: str) -> Iterator[tuple[str, bytes]]:
        """The SDK, and a `go.mod` that asks for just what the SDK asks for."""
        sdk = carried_sdk(self.name)
        for path in sorted(sdk.rglob("*")):
            if path.is_file() and not path.name.endswith("_test.go"):
                yield f"{_SDK_PLACE}/{path.relative_to(sdk).as_posix()}", path.read_bytes()
        yield "go.sum", (sdk / "go.sum").read_bytes()
        yield "go.mod", _module_file(plugin, (sdk / "go.mod").read_text("utf-8")).encode()

    def is_language_of(self, plugin: PluginFolder) -> bool:
        """See `ScaffoldLanguage`."""
        return isinstance(plugin.manifest.run, Command) and (plugin.path / "go.mod").is_file()

    def package_of(self, plugin: PluginFolder) -> str:
        """See `ScaffoldLanguage`."""
        return plugin.manifest.name

    def served(self, plugin: PluginFolder, runner: str) -> tuple[Path, str]:
        """See `ScaffoldLanguage`."""
        main = plugin.path / _MAIN
        function = f"run{_title(runner)}"
        entry = f'"{runner}": {function}'
        try:
            text = main.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ScaffoldRefused(f"{main} cannot be read: {error}") from error
        found = list(_RUNNERS.finditer(text))
        end = text.find("}", found[0].end()) if len(found) == 1 else -1
        inside = text[found[0].end() : end] if end >= 0 else ""
        if end < 0 or "{" in inside:
            raise ScaffoldRefused(
                f"{main} has not exactly one plain map[string]runmesh.Runner{{...}}",
                f"put {entry} among the runners there",
            )
        if re.search(rf"\b{function}\b", text):
            raise ScaffoldRefused(f"{main} uses the name {function} already", "choose another name")
        if "\n" in inside:
            changed = f"{text[:end].rstrip()}\n\t\t{entry},\n\t{text[end:]}"
        else:
            comma = ", " if inside.strip() else ""
            changed = f"{text[:end]}{comma}{entry}{text[end:]}"
        return main, _formatted(changed)


def _module_file(plugin: str, sdk: str) -> str:
    path = re.sub(r"[^a-z0-9._-]|\.+$", "", plugin)
    if _DEVICES.fullmatch(path):
        path = f"plugin-{path}"
    version = re.search(r"^go .*$", sdk, re.MULTILINE)
    required = "".join(f"\t{each} // indirect\n" for each in sorted(_REQUIRED.findall(sdk)))
    return (
        f"module example.com/{path}\n\n{version[0] if version else 'go 1.26.0'}\n\n"
        f"require {_SDK_MODULE} v0.1.0\n\nrequire (\n{required})\n\n"
        f"// The SDK came with runmesh: 'runmesh init' put it there.\n"
        f"replace {_SDK_MODULE} => ./{_SDK_PLACE}\n"
    )


def _file_name(runner: str) -> str:
    """The file of a runner, without its ending: an underscore would mean a system, or a test."""
    name = re.sub(r"[._-]", "", runner)
    return f"{name}runner" if name == "main" else name


def _title(runner: str) -> str:
    """A runner in the names of functions: `second-opinion` is `SecondOpinion`."""
    return "".join(word[:1].upper() + word[1:] for word in re.split(r"[._-]+", runner))


def _formatted(text: str) -> str:
    """The text as gofmt has it, where that is; the columns of a map depend on all its lines."""
    gofmt = shutil.which("gofmt")
    if gofmt is None:
        return text
    done = subprocess.run(
        [gofmt], input=text, capture_output=True, text=True, timeout=_FORMAT_SECONDS, check=False
    )
    return done.stdout if done.returncode == 0 else text
