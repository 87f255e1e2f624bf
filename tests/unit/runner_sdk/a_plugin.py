"""A plugin's process for the tests of `serve`: started as a program, with its own manifest."""

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path

from runner_sdk import Manifest, Result, RunContext, Tls, _server, agent_runner, serve


@agent_runner
async def works(ctx: RunContext) -> AsyncIterator[Result]:
    """Does what the input says."""
    marks = Path(os.environ["MARKS"])
    try:
        yield ctx.delta("started")
        if ctx.text == "wait":
            await asyncio.Event().wait()
        if ctx.text == "thread":
            await asyncio.to_thread(threading.Event().wait)
        while ctx.text == "deaf":
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                continue
        await asyncio.sleep(float(ctx.text or 0))
        yield ctx.delta(" and done")
    finally:
        # Cleaning up takes a while, and must be done before the process is gone.
        await asyncio.sleep(0.1)
        (marks / "cleaned").touch()


def _tls() -> Tls | None:
    folder = os.environ.get("CERTIFICATES")
    if folder is None:
        return None
    certificate, key = Path(folder, "runner.pem"), Path(folder, "runner.key")
    return Tls(certificate, key, client_ca=certificate)


if __name__ == "__main__":
    # What a test can wait for.
    vars(sys.modules[serve.__module__])["_THREADS_SECONDS"] = 0.3
    _server._CLEANUP_SECONDS = float(os.environ.get("CLEANUP", "5"))
    serve(
        works,
        manifest=Manifest.minimal("acme/test"),
        listen=sys.argv[1] if len(sys.argv) > 1 else None,
        tls=_tls(),
        grace_seconds=float(os.environ.get("GRACE", "5")),
    )
