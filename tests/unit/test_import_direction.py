"""Imports follow the arrow: what is further out may know what is further in, never the reverse.

The rules are read from the sources, so that a late import inside a function counts as well.
"""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("host_service", "runner_sdk", "stores")

# The host's own layers, from the outside in. A module may import from its own layer and from those
# after it. What is not listed (settings, errors, status, telemetry ...) may be used by all, and
# uses no layer itself.
LAYERS: tuple[frozenset[str], ...] = (
    frozenset({"host_service.__main__", "host_service.cli"}),
    frozenset({"host_service.testing"}),
    # Runs a plugin for its author, against a host that runs elsewhere.
    frozenset({"host_service.development"}),
    # Plays a host towards runners, and is none: it builds nothing of the real one.
    frozenset({"host_service.conformance"}),
    # Makes and installs plugins, with a host or without.
    frozenset({"host_service.packages"}),
    frozenset({"host_service.server"}),
    # What the root builds with: the server's registrations, and what happens once at a start.
    frozenset(
        {
            "host_service.collecting",
            "host_service.plugin_regime",
            "host_service.grpc_serving",
            "host_service.readiness",
            "host_service.refreshing",
            "host_service.start_up",
        }
    ),
    frozenset(
        {
            "host_service.admin",
            "host_service.admin_attach",
            "host_service.admin_audit",
            "host_service.admin_actions",
            "host_service.admin_catalogue",
            "host_service.admin_knowledge",
            "host_service.admin_models",
            "host_service.admin_plugins",
            "host_service.admin_runs",
            "host_service.admin_tools",
            "host_service.attach",
            "host_service.caller_files",
            "host_service.caller_transcript",
            "host_service.console",
            "host_service.declarations",
            "host_service.discovery",
            "host_service.gateway",
            "host_service.host_api",
            "host_service.interceptors",
            "host_service.requests",
            "host_service.unreadable",
        }
    ),
    frozenset(
        {
            "host_service.capabilities",
            # The models that the host has of itself, and models tried as runs would call them.
            "host_service.host_models",
            "host_service.model_trials",
        }
    ),
    frozenset(
        {
            "host_service.actions",
            "host_service.agents",
            "host_service.authorization",
            "host_service.catalogue",
            "host_service.environments",
            "host_service.knowledge",
            "host_service.models",
            "host_service.registry",
            "host_service.runs",
            "host_service.supervisor",
            "host_service.tools",
            # Turns their types into the contract's and back; they do not know it.
            "host_service.explained",
            "host_service.wire",
            "host_service.wire_catalogue",
            "host_service.wire_knowledge",
        }
    ),
    # The contract's rules, held against its messages: known to whoever takes some in, and knows
    # nobody.
    frozenset({"host_service.validation"}),
)

_GENERATED = ("google.protobuf", "google.rpc", "runmesh")
_RPC = ("grpc", "grpc_status", *_GENERATED)
_STUBS = "*_pb2_grpc"

# Which packages and generated code must stay out of where; a star stands for any beginning.
#
# `runs` works on the contract's messages themselves, since to turn every delta into a type of our
# own, and back, would cost more than everything else that happens to it on the way. It may know
# messages, then, but no service, no stub, and no transport: nothing there can make a call. What it
# decides by (agents, bindings, rights) is in our own types, and stays free of generated code.
REFUSED: Mapping[str, tuple[str, ...]] = {
    "stores": (*_RPC, "host_service", "runner_sdk"),
    "runner_sdk": ("host_service", "stores", "runmesh.admin"),
    "host_service.actions": (*_RPC, "host_service.wire"),
    "host_service.agents": (*_RPC, "host_service.wire"),
    "host_service.authorization": (*_RPC, "host_service.wire"),
    "host_service.catalogue": (*_RPC, "host_service.wire"),
    "host_service.errors": _RPC,
    "host_service.knowledge": (*_RPC, "host_service.wire"),
    "host_service.limits": _RPC,
    "host_service.models": (*_RPC, "host_service.wire"),
    "host_service.runs": (
        "grpc",
        "grpc_status",
        "google.rpc",
        "runmesh.admin",
        _STUBS,
        "host_service.wire",
    ),
    "host_service.settings": _RPC,
    "host_service.tools": (*_RPC, "host_service.wire"),
    "host_service.validation": (
        "grpc",
        "grpc_status",
        "google.rpc",
        _STUBS,
        "runner_sdk",
        "stores",
    ),
}


@dataclass(frozen=True, slots=True)
class Module:
    """A module, and the full names of what it imports."""

    name: str
    imports: frozenset[str]


def _is_within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def _is_refused(name: str, refused: str) -> bool:
    if refused.startswith("*"):
        return any(part.endswith(refused[1:]) for part in name.split("."))
    return _is_within(name, refused)


def _read_modules(root: Path) -> dict[str, Module]:
    modules: dict[str, Module] = {}
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            is_package = parts[-1] == "__init__"
            name = ".".join(parts[:-1] if is_package else parts)
            tree = ast.parse(path.read_text("utf-8"), str(path))
            home = name if is_package else name.rpartition(".")[0]
            modules[name] = Module(name, frozenset(_imports(tree, home)))
    return modules


def _imports(tree: ast.AST, home: str) -> Iterator[str]:
    """Yields `a.b` for `import a.b`, and both `a` and `a.b` for `from a import b`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = node.module or ""
            if node.level:
                above = home.split(".")[: len(home.split(".")) - node.level + 1]
                origin = ".".join([*above, origin] if origin else above)
            yield origin
            yield from (f"{origin}.{alias.name}" for alias in node.names)


def _layer(name: str) -> int | None:
    for depth, members in enumerate(LAYERS):
        if any(_is_within(name, member) for member in members):
            return depth
    return None


def _outward_imports(modules: Mapping[str, Module]) -> list[str]:
    """Finds imports of an outer layer from an inner one, or from a module that serves all."""
    found = []
    for module in modules.values():
        own = _layer(module.name)
        for imported in sorted(module.imports & modules.keys()):
            other = _layer(imported)
            # The package itself is above its modules in name only.
            if module.name in PACKAGES or other is None:
                continue
            if own is None or other < own:
                found.append(f"{module.name} imports {imported}")
    return found


def _refused_imports(modules: Mapping[str, Module]) -> list[str]:
    return [
        f"{module.name} imports {imported}"
        for home, refused in REFUSED.items()
        for module in modules.values()
        if _is_within(module.name, home)
        for imported in sorted(module.imports)
        if any(_is_refused(imported, package) for package in refused)
    ]


def _server_imports(modules: Mapping[str, Module]) -> list[str]:
    """Finds who imports the composition root without being a way to start it."""
    starters = ("host_service.cli", "host_service.__main__", "host_service.testing")
    return [
        module.name
        for module in modules.values()
        if any(_is_within(imported, "host_service.server") for imported in module.imports)
        and not any(_is_within(module.name, starter) for starter in starters)
        and not _is_within(module.name, "host_service.server")
    ]


def _find_cycle(modules: Mapping[str, Module]) -> list[str]:
    graph = {}
    for module in modules.values():
        targets = module.imports & modules.keys()
        # `from package import module` needs the module; the package is named on the way to it.
        graph[module.name] = {
            name for name in targets if name != module.name and not _is_within(module.name, name)
        }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        cycle: list[str] = error.args[1]
        return cycle
    return []


@pytest.fixture(scope="module")
def modules() -> dict[str, Module]:
    """Every module of the three packages."""
    return _read_modules(ROOT)


def test_inner_layers_import_no_outer_ones(modules: dict[str, Module]) -> None:
    assert _outward_imports(modules) == []


def test_stores_sdk_and_domain_stay_free_of_what_is_not_theirs(modules: dict[str, Module]) -> None:
    assert _refused_imports(modules) == []


def test_only_what_starts_a_host_imports_the_composition_root(modules: dict[str, Module]) -> None:
    assert _server_imports(modules) == []


def test_no_two_modules_import_each_other_in_a_circle(modules: dict[str, Module]) -> None:
    assert _find_cycle(modules) == []


def _write(root: Path, files: Mapping[str, str]) -> dict[str, Module]:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return _read_modules(root)


def test_import_of_an_outer_layer_is_found_inside_a_function_too(tmp_path: Path) -> None:
    modules = _write(
        tmp_path,
        {
            "host_service/gateway.py": "",
            "host_service/runs/loop.py": "def run():\n    from host_service import gateway\n",
            "host_service/settings.py": "import host_service.gateway\n",
        },
    )
    assert _outward_imports(modules) == [
        "host_service.runs.loop imports host_service.gateway",
        "host_service.settings imports host_service.gateway",
    ]


def test_generated_code_in_stores_is_found(tmp_path: Path) -> None:
    modules = _write(tmp_path, {"stores/events.py": "from runmesh.v1 import event_pb2\n"})
    assert "stores.events imports runmesh.v1.event_pb2" in _refused_imports(modules)


def test_service_stubs_in_the_runs_are_found_and_messages_are_not(tmp_path: Path) -> None:
    modules = _write(
        tmp_path,
        {
            "host_service/runs/a.py": "from runmesh.v1 import result_pb2, run_pb2_grpc\n",
            "host_service/runs/b.py": "from runmesh.v1.run_pb2_grpc import RunServiceStub\n",
            "host_service/agents/c.py": "from runmesh.v1 import result_pb2\n",
        },
    )
    found = _refused_imports(modules)
    assert "host_service.runs.a imports runmesh.v1.run_pb2_grpc" in found
    assert "host_service.runs.b imports runmesh.v1.run_pb2_grpc" in found
    assert "host_service.agents.c imports runmesh.v1.result_pb2" in found
    assert "host_service.runs.a imports runmesh.v1.result_pb2" not in found


def test_relative_import_of_the_composition_root_is_found(tmp_path: Path) -> None:
    modules = _write(
        tmp_path,
        {"host_service/server.py": "", "host_service/gateway.py": "from . import server\n"},
    )
    assert _server_imports(modules) == ["host_service.gateway"]


def test_circle_of_imports_is_found(tmp_path: Path) -> None:
    modules = _write(
        tmp_path,
        {
            "stores/a.py": "from stores.b import x\n",
            "stores/b.py": "import stores.c\n",
            "stores/c.py": "from . import a\n",
        },
    )
    assert set(_find_cycle(modules)) == {"stores.a", "stores.b", "stores.c"}
