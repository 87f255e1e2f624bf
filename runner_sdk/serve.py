"""Serves runners in a process of their own: what a plugin's main module calls."""

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from runner_sdk._attach import Attach
from runner_sdk._parent import ParentWatch
from runner_sdk._server import RunnerServer
from runner_sdk._tls import Tls
from runner_sdk.errors import SdkError
from runner_sdk.manifest import Manifest
from runner_sdk.runner import AgentRunner

_logger = logging.getLogger("runner_sdk.serve")

_GRACE_SECONDS = 30.0
# A host gives its child processes 5 s: the last of them is for the clean-up of cancelled runs.
_SUPERVISED_GRACE_SECONDS = 4.0
# How long threads that authors started get to end when all runs have.
_THREADS_SECONDS = 2.0


def serve(
    *runners: AgentRunner,
    manifest: Manifest | str | Path | None = None,
    listen: str | None = None,
    tls: Tls | None = None,
    attach: Attach | None = None,
    max_concurrent_runs: int = 0,
    grace_seconds: float | None = None,
) -> None:
    """Serves runners until the process is told to stop, or the host that started it is gone.

    It listens for hosts, or attaches to one.

    On SIGTERM or SIGINT it takes no more runs, and health says NOT_SERVING. Runs under way have the
    grace to end, then they are cancelled and clean up. A second signal cancels at once.

    Args:
        *runners: The plugin's runners.
        manifest: The plugin's manifest, or the path of its `manifest.yaml`. By default the nearest
            one above the first runner's source file.
        listen: `host:port` or `unix:/path`. By default what the host put into `RUNMESH_LISTEN`, and
            without a host any free port of 127.0.0.1.
        attach: The host to attach to, instead of listening. By default the one that
            `RUNMESH_ATTACH` names, with the token in `RUNMESH_ATTACH_TOKEN`. A connection that is
            lost is opened again; runs that were on it are over.
        tls: Certificates. By default those that `RUNMESH_TLS_CERT`, `RUNMESH_TLS_KEY`,
            `RUNMESH_TLS_CLIENT_CA` and `RUNMESH_TLS_HOST_CA` name. Without them only this machine
            can be listened to. A unix socket has no TLS.
        max_concurrent_runs: How many runs the process takes at once. 0: as many as come.
        grace_seconds: How long runs under way have to end. By default 30 s, and 4 s under a host,
            which gives 5 s to the process.

    Raises:
        SystemExit: The runners cannot be served; its text says why.
    """
    _set_up_logging()
    supervised = os.environ.get("RUNMESH_SUPERVISED") == "1"
    if grace_seconds is None:
        grace_seconds = _SUPERVISED_GRACE_SECONDS if supervised else _GRACE_SECONDS
    try:
        with _bounded_end() as timer, asyncio.Runner(loop_factory=_loop_factory()) as loop_runner:
            ended = loop_runner.run(
                _serve(
                    lambda: RunnerServer(
                        runners,
                        manifest=manifest,
                        listen=listen,
                        tls=tls or Tls.from_environment(),
                        attach=attach or Attach.from_environment(),
                        max_concurrent_runs=max_concurrent_runs,
                    ),
                    grace_seconds=grace_seconds,
                    supervised=supervised,
                )
            )
            if not ended:
                _leave()
            timer.start()
    except SdkError as error:
        raise SystemExit(f"cannot serve: {error}") from error


async def _serve(
    make_server: Callable[[], RunnerServer], *, grace_seconds: float, supervised: bool
) -> bool:
    loop = asyncio.get_running_loop()
    server = make_server()
    told = asyncio.Event()

    def stop(reason: str) -> None:
        if told.is_set():
            server.hurry()
        told.set()
        _logger.info("%s: draining, %d runs under way", reason, server.active_runs)

    def parent_gone() -> None:
        server.hurry()
        stop("the host is gone")

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number.name)
    watch = ParentWatch(loop=loop, on_gone=parent_gone)
    if supervised:
        watch.start()
    address = await server.start()
    verb = "attaches to" if server.attaches else "listens on"
    _logger.info("%s %s %s", server.manifest.plugin_id, verb, address)
    waiting = asyncio.create_task(told.wait())
    refused = asyncio.create_task(server.refused())
    try:
        await asyncio.wait({waiting, refused}, return_when=asyncio.FIRST_COMPLETED)
        all_ended = await server.drain(grace_seconds)
        if refused.done():
            raise refused.result()
        return all_ended
    finally:
        waiting.cancel()
        refused.cancel()
        watch.stop()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        # Not on every system; asyncio's own loop does the same, slower.
        return None
    return uvloop.new_event_loop


def _set_up_logging() -> None:
    """Sends log lines to stderr, where the host reads them, unless the author has set it up."""
    if not logging.getLogger().handlers:
        logging.basicConfig(
            stream=sys.stderr, level=logging.INFO, format="%(levelname)s %(name)s: %(message)s"
        )


@contextmanager
def _bounded_end() -> Iterator[threading.Timer]:
    """Lets a thread that some run left blocked hold up the end for a moment, not for ever.

    Closing the loop waits for the threads of its executor. The timer runs once it is started.
    """
    timer = threading.Timer(_THREADS_SECONDS, _leave)
    timer.daemon = True
    try:
        yield timer
    finally:
        timer.cancel()


def _leave() -> NoReturn:
    """Ends the process although some code of a run does not end."""
    _logger.error("code of a run goes on after its cancellation: the process ends without it")
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)
