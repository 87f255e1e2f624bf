"""Runners that are dialled with TLS are checked as others are."""

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from host_service.certificates.authority import Authority
from host_service.certificates.files import DialFiles, ListenFiles
from host_service.conformance import HostListening, Options, Verdict, check_address
from host_service.conformance.session import Session
from runner_sdk import Manifest, Result, RunContext, Tls, agent_runner
from runner_sdk._server import RunnerServer
from tests.acceptance.commands import CommandLine
from tests.conformance.runners.sdk_runners import Waiting

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


def own_address() -> str:
    """An address of this machine that others could reach; skips where there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Nothing is sent: it only asks which address would be used.
            probe.connect(("192.0.2.77", 9))
        except OSError:
            pytest.skip("this machine has no address but loopback")
        address: str = probe.getsockname()[0]
    if address.startswith("127."):
        pytest.skip("this machine has no address but loopback")
    return address


async def test_runner_elsewhere_calls_the_kit_where_it_was_told_over_tls(tmp_path: Path) -> None:
    mine = own_address()
    authority = Authority.create(tmp_path / "certs")
    shown = authority.issue("kit", hosts=(mine,))
    runners = authority.issue("runner", hosts=(mine,))
    ca = authority.certificate_file
    server = RunnerServer(
        [Waiting()],
        manifest=Manifest.minimal("acme/desk"),
        listen=f"{mine}:0",
        tls=Tls(runners.certificate, runners.key, host_ca=ca),
    )
    address = await server.start()
    try:
        listening = HostListening(
            host=mine, tls=ListenFiles(certificate=shown.certificate, key=shown.key)
        )
        options = Options(
            only=("hosts.two", "tokens", "input.text"), tls=DialFiles(ca=ca), listening=listening
        )
        report = await check_address(address, options)
        assert report.passed, [each for each in report.outcomes if each.verdict is Verdict.FAILED]
        session = Session(address=address, options=options)
        try:
            await session.open()
            for host in (0, 1):
                await session.run("of two hosts", host=host)
            called = {call.address for call in session.calls if call.grant is not None}
            assert called == {host.address for host in session.hosts}
            assert all(each.startswith(f"{mine}:") for each in called)
        finally:
            await session.close()
        runmesh = CommandLine(tmp_path / "data")
        words = ("conformance", address, "--ca", str(ca), "--only", "tokens", "--only", "hosts.two")
        where = ("--host-api-listen", f"{mine}:0")
        files = ("--tls-cert", str(shown.certificate), "--tls-key", str(shown.key))
        done = await asyncio.to_thread(runmesh.process, *words, *where, *files)
        assert done.status == 0, (done.out, done.err)
        bare = await asyncio.to_thread(runmesh.process, *words, *where)
        assert bare.status == 2
        assert "--host-api-listen" in bare.err
        assert "would not be encrypted" in bare.err
    finally:
        await server.drain(0)
