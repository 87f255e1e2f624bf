"""What the commands about packages share: failures in their own words, progress, the parts."""

import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

from host_service.cli.failures import CommandError, one_line, tell

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

    from host_service.environments import Environment
    from host_service.packages.installing import Seen
    from host_service.packages.packing import PluginFolder

_CALL_SECONDS = 10.0
_ENVIRONMENTS_KEPT_SECONDS = 30 * 86_400.0


@contextmanager
def failing_plainly() -> Iterator[None]:
    """Turns what packages, environments and files raise into the one line that commands print.

    What they warn of is printed once each, however often a manifest is read on the way.
    """
    from host_service.environments import EnvironmentProblem
    from host_service.packages.errors import PackageError

    try:
        with _warnings_told_once():
            yield
    except PackageError as error:
        raise CommandError(error.problem, error.advice) from error
    except EnvironmentProblem as error:
        raise CommandError(f"the plugin's environment cannot be made: {error}") from error
    except OSError as error:
        about = f"{error.filename}: " if error.filename else ""
        raise CommandError(f"{about}{error.strerror or error}") from error


class _ToldOnce(logging.Handler):
    """Prints each warning once; those of instances are left to the failure that follows."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._told: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Prints a warning, unless it was printed before."""
        message = record.getMessage()
        if record.name != "runmesh.registry" and message not in self._told:
            self._told.add(message)
            tell(message)


@contextmanager
def _warnings_told_once() -> Iterator[None]:
    logger, handler = logging.getLogger("runmesh"), _ToldOnce()
    propagated = logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield
    finally:
        logger.propagate = propagated
        logger.removeHandler(handler)


class ShownProgress:
    """Shows steps and downloads on a terminal; in a pipe, says nothing. Use it with `with`."""

    def __init__(self) -> None:
        self._bars: Bars | None = None
        self._task: TaskID | None = None
        self._step = ""

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.progress import Progress, SpinnerColumn, TextColumn

            from host_service.cli.display import notes

            self._bars = Progress(
                SpinnerColumn(),
                TextColumn("{task.description}", markup=False),
                console=notes(),
                transient=True,
            )
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bars is not None:
            self._bars.stop()

    def step(self, what: str) -> None:
        """A step begins."""
        if self._bars is None:
            return
        if self._task is not None:
            self._bars.remove_task(self._task)
        self._step = one_line(what)
        self._task = self._bars.add_task(self._step, total=None)

    def moved(self, done_bytes: int, all_bytes: int | None) -> None:
        """So much of a download has come."""
        if self._bars is None or self._task is None:
            return
        from rich.filesize import decimal

        of_all = f" of {decimal(all_bytes)}" if all_bytes else ""
        self._bars.update(self._task, description=f"{self._step}: {decimal(done_bytes)}{of_all}")

    def line(self, text: str) -> None:
        """A line of a tool at work."""
        if self._bars is not None and text.strip():
            self._bars.console.print(one_line(text), style="dim", soft_wrap=True)


class HostOnData:
    """The host that runs on a data folder, if one does, as installations see it.

    Args:
        data_folder: The data folder.
    """

    def __init__(self, data_folder: Path) -> None:
        self._data_folder = data_folder

    def instances(self, plugin_id: str) -> "Sequence[Seen] | None":
        """The processes of a plugin that the host started; None: no host runs."""
        from runmesh.v1 import discovery_pb2

        from host_service.cli.connection import HostConnection, call_host
        from host_service.cli.options import Target
        from host_service.cli.running_host import host_holds, read_host_file
        from host_service.packages.installing import Seen

        host = read_host_file(self._data_folder)
        # One that was killed has left its file.
        answers = host is not None and host.address() is not None
        if not answers and not host_holds(self._data_folder):
            return None

        async def work(connection: HostConnection) -> discovery_pb2.ListRunnersResponse:
            request = discovery_pb2.ListRunnersRequest()
            return await connection.discovery.ListRunners(
                request, metadata=connection.metadata, timeout=_CALL_SECONDS
            )

        mesh = call_host(Target(data_folder=self._data_folder), work)
        return [
            Seen(
                process=f"{each.process_id}/{each.instance_id}" if each.process_id else "",
                state=_state(each.state),
                version=each.plugin_version,
                reason=each.reason,
            )
            for each in mesh.instances
            if each.plugin_id == plugin_id and each.found_by == "folder"
        ]


def build_environment(folder: Path, data_folder: Path, progress: ShownProgress) -> "Environment":
    """Makes sure that a plugin's environment is there."""
    import asyncio

    from host_service.environments import build

    return asyncio.run(build(folder, data_folder, progress.line))


def collect_environments(data_folder: Path) -> None:
    """Removes environments that no plugin needs any more, if they were not used for long."""
    from host_service.environments import EnvironmentShelf
    from host_service.environments.needs import collect_unneeded, plugin_places

    # What was asked for is done by now; what cannot be removed is tried again the next time.
    with suppress(OSError):
        # Plugins that a host finds elsewhere are not known here, and it may stand still a while.
        collect_unneeded(
            EnvironmentShelf(data_folder),
            plugin_places(data_folder, versions=True),
            unused_seconds=_ENVIRONMENTS_KEPT_SECONDS,
        )


def see_it_run(plugin: "PluginFolder", data_folder: Path) -> None:
    """Runs a plugin for a moment, and compares what it serves with its files."""
    import asyncio

    from host_service.environments import EnvironmentShelf
    from host_service.environments.interpreters import interpreters_of
    from host_service.packages.trial import try_plugin

    find_interpreter = interpreters_of(EnvironmentShelf(data_folder))
    asyncio.run(try_plugin(plugin, find_interpreter=find_interpreter))


def _state(number: int) -> str:
    from runmesh.v1 import discovery_pb2

    from host_service.cli.display import words

    return words(discovery_pb2.InstanceState, number)
