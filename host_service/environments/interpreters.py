"""Gives the supervisor the Python of each plugin; builds nothing."""

from collections.abc import Callable
from pathlib import Path

from host_service.environments.errors import EnvironmentProblem
from host_service.environments.shelf import Environment, EnvironmentShelf
from host_service.supervisor.errors import EnvironmentMissing
from host_service.supervisor.interpreter import FindInterpreter, Interpreter


def interpreters_of(shelf: EnvironmentShelf) -> FindInterpreter:
    """Makes the function that finds the interpreter of the plugin in a folder."""

    def find(folder: Path) -> Interpreter:
        try:
            environment = shelf.find(shelf.read(folder))
        except EnvironmentProblem as error:
            raise EnvironmentMissing(f"it can have no environment: {error}") from error
        except OSError as error:
            problem = f"what it asks for cannot be read: {error.strerror}"
            raise EnvironmentMissing(problem) from error
        return Interpreter(
            python=environment.python,
            folder=environment.folder,
            hold=lambda: _hold(shelf, environment, folder),
        )

    return find


def _hold(shelf: EnvironmentShelf, environment: Environment, folder: Path) -> Callable[[], None]:
    lease = shelf.take(environment)
    if lease is None:
        raise EnvironmentMissing(
            f"its environment is not built: run 'runmesh plugins build {folder}'"
        )
    return lease.release
