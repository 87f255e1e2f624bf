"""Which Python a plugin's module runs in. What makes it is not known here: a start never does."""

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path


def _nothing_to_hold() -> Callable[[], None]:
    return lambda: None


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python for one start of a plugin.

    Attributes:
        python: The program.
        folder: The environment that it belongs to; None: the host's own.
        hold: Keeps the environment from being removed until the function that it returns is called,
            or this process ends; raises `EnvironmentMissing` when it is not there. It is quick.
    """

    python: Path
    folder: Path | None = None
    hold: Callable[[], Callable[[], None]] = _nothing_to_hold

    def complete(self, environment: Mapping[str, str]) -> dict[str, str]:
        """The environment of a process, with the programs of this Python first on its path."""
        if self.folder is None:
            return dict(environment)
        path = [str(self.folder / "bin"), environment.get("PATH", os.defpath)]
        return {
            **environment,
            "PATH": os.pathsep.join(path),
            "VIRTUAL_ENV": str(self.folder),
        }


HOSTS_INTERPRETER = Interpreter(Path(sys.executable))

#: The interpreter of the plugin in a folder. Blocks on the file system; raises `EnvironmentMissing`
#: when the plugin asks for what cannot be given.
FindInterpreter = Callable[[Path], Interpreter]


def hosts_interpreter(_folder: Path) -> Interpreter:
    """The host's own, for every plugin."""
    return HOSTS_INTERPRETER
