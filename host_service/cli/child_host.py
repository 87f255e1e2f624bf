"""A host that lives as long as one chat: started as a child process, stopped at the end.

The child runs in a session of its own, so that Ctrl-C at the terminal reaches the chat alone. Its
standard input is a pipe from this process that nobody writes to: when this process is gone, however
it went, the pipe ends and the host stops by itself.
"""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from host_service.cli.failures import CommandError
from host_service.cli.running_host import host_holds, read_host_file

LOG_NAME = "host.log"

_POLL_SECONDS = 0.01
_START_SECONDS = 60.0
# A host gives the runs under way 30 s; then a second signal makes it cancel them.
_STOP_SECONDS = 40.0
_HURRIED_STOP_SECONDS = 15.0
_LARGEST_LOG_BYTES = 8 * 1024 * 1024
_ERROR_PREFIX = "runmesh: "


class ChildHost:
    """A host in a child process.

    Attributes:
        data_folder: The data folder it works on.
        log: The file that has its output.
    """

    def __init__(self, data_folder: Path) -> None:
        self.data_folder = data_folder
        self.log = data_folder / LOG_NAME
        self._log_start = _prepare_log(self.log)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                # -P: a folder that happens to hold a host_service of its own must not be run.
                [sys.executable, "-P", "-m", "host_service", "up", "--data", str(data_folder),
                 "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--quit-with-stdin"],
                stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def wait_until_ready(self) -> bool:
        """Waits for the host; false when another was quicker to take the data folder and is there.

        Raises:
            CommandError: The child ended instead, or takes too long.
        """
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            # Ended is looked at before ready: between the two another host may become ready.
            ended = self._process.poll() is not None
            host = read_host_file(self.data_folder)
            if host is not None and (ended or host.process_id == self._process.pid):
                if host.address() is not None:
                    return not ended
            elif ended and not host_holds(self.data_folder):
                raise self.explain_end()
            time.sleep(_POLL_SECONDS)
        raise CommandError(
            f"the host was not ready within {_START_SECONDS:.0f} s", f"its log is {self.log}"
        )

    def has_ended(self) -> bool:
        """Whether the host is gone."""
        return self._process.poll() is not None

    def explain_end(self) -> CommandError:
        """Why the host is gone, in its own words where it left some."""
        told = _last_words(self.log, self._log_start)
        if told.startswith(_ERROR_PREFIX):
            return CommandError(told.removeprefix(_ERROR_PREFIX))
        status = self._process.returncode
        how = f"signal {-status}" if status < 0 else f"exit status {status}"
        detail = f": {told}" if told else ""
        return CommandError(f"the host ended with {how}{detail}", f"its log is {self.log}")

    def stop(self) -> None:
        """Stops the host and waits until it is gone."""
        try:
            self._ask_to_stop(_STOP_SECONDS)
        except KeyboardInterrupt:
            # Asked a second time it does not wait for runs.
            self._ask_to_stop(_HURRIED_STOP_SECONDS)
        if self._process.poll() is None:
            self._ask_to_stop(_HURRIED_STOP_SECONDS)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        if self._process.stdin:
            self._process.stdin.close()

    def _ask_to_stop(self, seconds: float) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return


@contextmanager
def host_for_chat(data_folder: Path) -> Iterator[ChildHost | None]:
    """Sees to it that a host runs on a data folder; yields the child if one had to be started.

    What was started is stopped at the end; a host that ran already is used and left alone.

    Raises:
        CommandError: There is none and none could be started.
    """
    host = read_host_file(data_folder)
    if host is not None and host.address() is not None:
        yield None
        return
    child = ChildHost(data_folder)
    try:
        yield child
    finally:
        child.stop()


def _prepare_log(path: Path) -> int:
    """Makes the log's folder and file, private; returns where what follows begins."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if path.exists() and path.stat().st_size > _LARGEST_LOG_BYTES:
            path.replace(path.with_name(f"{path.name}.1"))
        path.touch(mode=0o600)
        return path.stat().st_size
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror}") from error


def _last_words(path: Path, start: int) -> str:
    """The error line of what a host wrote; without one, the last line."""
    with path.open("rb") as log:
        log.seek(start)
        lines = log.read().decode("utf-8", "replace").strip().splitlines()
    errors = [line for line in lines if line.startswith(_ERROR_PREFIX)]
    return (errors or lines or [""])[-1]
