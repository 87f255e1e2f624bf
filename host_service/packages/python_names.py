"""What things of a plugin are called in Python: names that can be imported, and hide nothing."""

import keyword
import re
import sys

# What a plugin imports, or has beside its package.
_TAKEN_PACKAGES = frozenset(
    {"runner_sdk", "runmesh", "grpc", "google", "yaml", "uvloop", "pytest", "tests", "components"}
)
_TAKEN_MODULES = frozenset({"main"})
_TAKEN_CLASSES = frozenset({"AgentRunner", "AsyncIterator", "Result", "RunContext"})


def package_name(plugin: str) -> str:
    """The package of a plugin: `help-desk` is `help_desk`, and `json` is `json_plugin`."""
    name = _identifier(plugin, "plugin_")
    if name in sys.stdlib_module_names or name in _TAKEN_PACKAGES or keyword.iskeyword(name):
        return f"{name}_plugin"
    return name


def module_name(runner: str) -> str:
    """The module of a runner."""
    name = _identifier(runner, "runner_")
    return f"{name}_runner" if name in _TAKEN_MODULES or keyword.iskeyword(name) else name


def class_name(runner: str) -> str:
    """The class of a runner: `second-opinion` is `SecondOpinion`."""
    words = re.split(r"[._-]+", runner)
    name = "".join(word[:1].upper() + word[1:] for word in words)
    if name[:1].isdigit():
        name = f"Runner{name}"
    return f"{name}Runner" if name in _TAKEN_CLASSES or keyword.iskeyword(name) else name


def _identifier(name: str, prefix: str) -> str:
    plain = re.sub(r"[.-]", "_", name)
    return f"{prefix}{plain}" if plain[:1].isdigit() else plain
