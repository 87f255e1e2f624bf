"""Runners that are dialled with TLS are checked as others are."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from host_service.certificates.authority import Authority
from host_service.certificates.files import DialFiles
from host_service.conformance import Options, Verdict, check_address
from runner_sdk import Manifest, Result, RunContext, Tls, agent_runner
from runner_sdk._server import RunnerServer
from tests.acceptance.commands import CommandLine

ONLY = ("handshake", "input.text", "results", "health.serving", "reflection")


@agent_runner
async def answer(ctx: RunContext) -> AsyncIterator[Result]:
    """Says what was said."""
    yield ctx.reply(ctx.text)


async def test_runner_that_asks_for_a_certificate_is_checked_with_one(tmp_path: Path) -> None:
    authority = Authority.create(tmp_path / "certs")
    shown = authority.issue("runner", hosts=("127.0.0.1",))
    mine = authority.issue("kit", for_clients_only=True)
    ca = authority.certificate_file
    server = RunnerServer(
        [answer],
        manifest=Manifest.minimal("acme/desk"),
        listen="127.0.0.1:0",
        tls=Tls(shown.certificate, shown.key, client_ca=ca),
    )
    address = await server.start()
    try:
        files = DialFiles(ca=ca, certificate=mine.certificate, key=mine.key)
        report = await check_address(address, Options(only=ONLY, tls=files))
        assert report.passed, [each for each in report.outcomes if each.verdict is Verdict.FAILED]
        assert report.count(Verdict.OK) > 10
        runmesh = CommandLine(tmp_path / "data")
        words = ("conformance", address, "--only", "handshake", "--ca", str(ca))
        shows = ("--cert", str(mine.certificate), "--key", str(mine.key))
        done = await asyncio.to_thread(runmesh.process, *words, *shows)
        assert done.status == 0, done.err
        without = await asyncio.to_thread(runmesh.process, *words)
        assert without.status == 2
    finally:
        await server.drain(0)
