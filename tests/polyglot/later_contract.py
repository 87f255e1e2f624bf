"""A later version of the contract, made of today's: with everything that a version may add.

Each message has two more fields, each enum one more value, the results and the parts of content one
more choice, HostAPIService one more call. Runners in Python, Go and TypeScript are built of it by
the tools that build the examples, and a host is started on it.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.polyglot.examples import EXAMPLES, ROOT, built_example

#: The number of whatever is new: fields from it on, and values of enums.
LATER = 1000
_PARTS = Path(__file__).with_name("later")
_BUILD_SECONDS = 600.0

_MESSAGE = re.compile(r"^message (\w+) \{(\})?$", re.MULTILINE)
_ENUM = re.compile(r"^enum \w+ \{$(.*?)^\}$", re.MULTILINE | re.DOTALL)
_ZERO = re.compile(r"^  (\w+)_UNSPECIFIED = 0;$", re.MULTILINE)
_FIELDS = """\
  // Optional. Of a later version.
  string later_text = 1000;
  // Optional. Of a later version.
  LaterThing later_thing = 1001;
"""
# A choice more, by the line that its `oneof` begins with.
_CHOICES = {
    "result.proto": ("  oneof payload {\n", "    LaterThing later_result = 1002;\n"),
    "types.proto": ("  oneof content {\n", "    LaterThing later_content = 1002;\n"),
}
_THING = """
// Of a later version.
message LaterThing {
  // Optional. A number.
  int64 later_number = 1;
}
"""
_CALL = """\
  // Of a later version.
  rpc Foretell(ForetellRequest) returns (ForetellResponse);
"""
_CALL_MESSAGES = """
// Asks for what is to come.
message ForetellRequest {}

// What is to come.
message ForetellResponse {}
"""


@dataclass(frozen=True, slots=True)
class LaterContract:
    """A later version of the contract, in a folder of its own.

    Attributes:
        folder: The folder; `proto` in it has the contract.
    """

    folder: Path

    @property
    def stubs(self) -> Path:
        """Where its stubs in Python are."""
        return self.folder / "python"

    def environment(self, note: Path) -> Mapping[str, str]:
        """Variables with which a Python process speaks it, and writes down what it sent."""
        return {
            "PYTHONPATH": os.pathsep.join(map(str, (self.stubs, ROOT))),
            "LATER_NOTE": str(note),
        }

    def plugin(self, language: str) -> Path:
        """Builds the plugin `later/LANGUAGE` of it, with the runner `later`; returns its folder."""
        return _PLUGINS[language](self)


def later_contract(folder: Path) -> LaterContract:
    """Makes the later version, and its stubs in Python."""
    proto = folder / "proto"
    shutil.copytree(ROOT / "proto" / "runmesh", proto / "runmesh")
    (folder / "buf.yaml").write_text("version: v2\nmodules: [{path: proto}]\n")
    for path in (proto / "runmesh" / "v1").glob("*.proto"):
        path.write_text(_later(path.name, path.read_text()))
    contract = LaterContract(folder)
    contract.stubs.mkdir()
    files = [str(path.relative_to(proto)) for path in sorted(proto.rglob("*.proto"))]
    _run(
        sys.executable, "-m", "grpc_tools.protoc", f"-I{proto}", f"--python_out={contract.stubs}",
        f"--grpc_python_out={contract.stubs}", *files,
    )  # fmt: skip
    shutil.copy(_PARTS / "sitecustomize.py", contract.stubs)
    return contract


def _later(name: str, text: str) -> str:
    """The text of a file of the contract, in the later version."""

    def with_fields(match: re.Match[str]) -> str:
        return f"message {match[1]} {{\n{_FIELDS}{match[2] or ''}"

    def with_value(match: re.Match[str]) -> str:
        zero = _ZERO.search(match[0])
        assert zero is not None, match[0]
        value = f"  // Of a later version.\n  {zero[1]}_LATER = {LATER};\n"
        return f"{match[0][:-1]}{value}}}"

    if name == "host_api.proto":
        text = text.replace("service HostAPIService {\n", f"service HostAPIService {{\n{_CALL}")
        text += _CALL_MESSAGES
    text = _ENUM.sub(with_value, _MESSAGE.sub(with_fields, text))
    if name in _CHOICES:
        begin, choice = _CHOICES[name]
        assert text.count(begin) == 1, name
        text = text.replace(begin, f"{begin}    // Optional. Of a later version.\n{choice}")
    if name == "types.proto":
        return text + _THING
    imported = 'import "runmesh/v1/types.proto";\n'
    if imported in text or "message" not in text:
        return text
    return text.replace("package runmesh.v1;\n", f"package runmesh.v1;\n\n{imported}")


def _python_plugin(contract: LaterContract) -> Path:
    place = contract.folder / "plugins" / "python"
    _described(place, "python", [sys.executable, "main.py", str(contract.stubs)])
    shutil.copy(_PARTS / "later_runner.py", place / "main.py")
    return place


def _go_plugin(contract: LaterContract) -> Path:
    built_example("go")  # its modules are there, then
    sdk, place = contract.folder / "sdk" / "go", contract.folder / "plugins" / "go"
    shutil.copytree(ROOT / "sdk" / "go", sdk, ignore=shutil.ignore_patterns("*_test.go"))
    _generate(contract, "go", sdk / "gen")
    _described(place, "go", ["./bin/plugin"])
    for name in ("go.mod", "go.sum"):
        shutil.copy(EXAMPLES / "go" / name, place)
    shutil.copy(_PARTS / "later.go", place / "main.go")
    _run("go", "build", "-o", "bin/plugin", ".", folder=place)
    return place


def _typescript_plugin(contract: LaterContract) -> Path:
    built_example("typescript")  # its packages are there, then
    made = shutil.ignore_patterns("node_modules", "dist", "test", "*.test.ts")
    sdk, place = contract.folder / "sdk" / "typescript", contract.folder / "plugins" / "typescript"
    shutil.copytree(ROOT / "sdk" / "typescript", sdk, ignore=made)
    (sdk / "node_modules").symlink_to(ROOT / "sdk" / "typescript" / "node_modules")
    _generate(contract, "typescript", sdk / "src" / "gen")
    _described(place, "typescript", ["node", "dist/main.js"])
    for name in ("package.json", "tsconfig.json"):
        shutil.copy(EXAMPLES / "typescript" / name, place)
    (place / "src").mkdir()
    shutil.copy(_PARTS / "later.ts", place / "src" / "main.ts")
    modules = place / "node_modules"
    modules.mkdir()
    for entry in (EXAMPLES / "typescript" / "node_modules").iterdir():
        if entry.name != "@runmesh":
            (modules / entry.name).symlink_to(entry)
    (modules / "@bufbuild").symlink_to(sdk / "node_modules" / "@bufbuild")
    (modules / "@runmesh").mkdir()
    (modules / "@runmesh" / "sdk").symlink_to(sdk)
    _run("node_modules/.bin/tsc", "--build", folder=place)
    return place


_PLUGINS: Mapping[str, Callable[[LaterContract], Path]] = {
    "go": _go_plugin,
    "python": _python_plugin,
    "typescript": _typescript_plugin,
}
#: The languages that there are plugins of the later version in.
LATER_LANGUAGES = sorted(_PLUGINS)


def _generate(contract: LaterContract, language: str, place: Path) -> None:
    """Writes the later version's code where the SDK has today's."""
    # Brings the generators, where they are not there yet.
    _run("make", "--silent", "stubs", f"LANG={language}", f"OUT={contract.folder / 'today'}")
    template = f"dev/stubs/{language}.yaml"
    _run(
        ".venv/bin/buf", "generate", str(contract.folder), "--template", template, "-o", str(place)
    )


def _described(place: Path, language: str, command: list[str]) -> Path:
    (place / "components").mkdir(parents=True)
    named = {"apiVersion": "runmesh/v1"}
    component = {
        **named,
        "kind": "AgentRunner",
        "metadata": {"name": "later", "label": {"en_US": "Later"}},
        "capabilities": {"streaming": True},
    }
    manifest = {
        **named,
        "kind": "Plugin",
        "metadata": {
            "author": "later", "name": language, "version": "9.0.0", "label": {"en_US": "Later"},
        },
        "run": {"command": command},
        "components": ["components/later.yaml"],
    }  # fmt: skip
    (place / "components" / "later.yaml").write_text(yaml.safe_dump(component))
    (place / "manifest.yaml").write_text(yaml.safe_dump(manifest))
    return place


def _run(*command: str, folder: Path = ROOT) -> None:
    ran = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=_BUILD_SECONDS, check=False
    )
    assert ran.returncode == 0, f"{' '.join(command)[:300]}: {ran.stdout}{ran.stderr}"
