"""A connection to a host, by what its data folder or the environment says."""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import grpc
from runmesh.admin.v1.admin_pb2_grpc import AdminServiceStub
from runmesh.v1.discovery_pb2_grpc import DiscoveryServiceStub
from runmesh.v1.gateway_pb2_grpc import GatewayServiceStub

from host_service.certificates.files import SYSTEM, DialFiles
from host_service.cli.certificate_folder import authority_of
from host_service.cli.failures import CommandError
from host_service.cli.options import Target, is_loopback
from host_service.cli.refusals import decode, explain
from host_service.cli.running_host import (
    RunningHost,
    find_host,
    no_host,
    operator_key,
    read_host_file,
)
from host_service.cli.tls_trouble import tls_trouble

Result = TypeVar("Result")

# The contract's: a message on any connection is at most 16 MiB.
MESSAGE_BYTES = 16 * 1024 * 1024
CALL_SECONDS = 30.0
# Cancelling answers when the run has ended, and a runner has a grace to end it.
CANCEL_SECONDS = 60.0

_METADATA_VALUE = re.compile(r"[\x21-\x7e]+")


class HostConnection:
    """The services of one host, and the metadata that every call on them carries.

    Attributes:
        gateway: Events in, results out.
        admin: What operators use.
        channel: For services with other credentials.
        discovery: The runners of the mesh.
        metadata: The API key, as a call's metadata.
    """

    def __init__(self, channel: grpc.aio.Channel, *, api_key: str) -> None:
        self.gateway = GatewayServiceStub(channel)
        self.admin = AdminServiceStub(channel)
        self.channel = channel
        self.discovery = DiscoveryServiceStub(channel)
        self.metadata = (("authorization", f"Bearer {api_key}"),)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a host answers, the key to show there, and what TLS needs; None: there is no TLS."""

    address: str
    api_key: str = field(repr=False)
    tls: DialFiles | None = None


def locate(target: Target) -> Endpoint:
    """Finds out where a host answers; waits for one that is still starting.

    Raises:
        CommandError: No host runs on the data folder, or the key or the address will not do.
    """
    if target.address is not None:
        return Endpoint(address=target.address, api_key=_api_key(target), tls=_over_tcp(target))
    host, address = find_host(target.data_folder)
    tls = None if address.startswith("unix:") else target.tls or _tls_of(host, target.data_folder)
    return Endpoint(address=address, api_key=_api_key(target), tls=tls)


@asynccontextmanager
async def connect(endpoint: Endpoint) -> AsyncIterator[HostConnection]:
    """Opens a connection to a host; the first call on it tells whether the host is there."""
    async with _channel(endpoint) as channel:
        yield HostConnection(channel, api_key=endpoint.api_key)


def _channel(endpoint: Endpoint) -> grpc.aio.Channel:
    options = _channel_options(endpoint.address)
    if endpoint.tls is None:
        return grpc.aio.insecure_channel(endpoint.address, options=options)
    # Only where it is needed: certificates take long to import.
    from host_service.certificates.dialling import channel_credentials
    from host_service.certificates.errors import CertificateUnusable

    try:
        credentials = channel_credentials(endpoint.tls)
    except CertificateUnusable as error:
        raise CommandError(error.message, error.advice) from error
    if endpoint.tls.name:
        options.append(("grpc.ssl_target_name_override", endpoint.tls.name))
    return grpc.aio.secure_channel(endpoint.address, credentials, options=options)


def call_host(
    target: Target,
    work: Callable[[HostConnection], Awaitable[Result]],
    *,
    advice: Mapping[str, str] | None = None,
) -> Result:
    """Runs a command's work on a connection of its own.

    Args:
        target: Which host.
        work: What to do there.
        advice: What to do next, by reason, when the host refuses.

    Raises:
        CommandError: The host is not there, or refused.
    """
    endpoint = locate(target)

    async def connected() -> Result:
        async with connect(endpoint) as connection:
            return await work(connection)

    try:
        return asyncio.run(connected())
    except grpc.aio.AioRpcError as error:
        raise failure(error, target, advice) from error


def failure(
    error: grpc.aio.AioRpcError, target: Target, advice: Mapping[str, str] | None = None
) -> CommandError:
    """What a failed call means to the one who typed the command."""
    refusal = decode(error)
    if refusal.from_host or error.code() is not grpc.StatusCode.UNAVAILABLE:
        return explain(refusal, advice)
    if target.address is None:
        return _trouble_on(target) or no_host(target.data_folder)
    trouble = tls_trouble(target.address, _over_tcp(target))
    if trouble is not None:
        return trouble
    return CommandError(f"no host answers at {target.address}", refusal.message.split(": ")[-1])


def _trouble_on(target: Target) -> CommandError | None:
    """Why the host on a data folder could not be reached over TCP, as far as TLS goes."""
    host = read_host_file(target.data_folder)
    address = host.address() if host else None
    if host is None or address is None or address.startswith("unix:"):
        return None
    return tls_trouble(address, target.tls or _tls_of(host, target.data_folder))


def _over_tcp(target: Target) -> DialFiles | None:
    """What TLS needs at the target's address; a socket has none."""
    return None if (target.address or "").startswith("unix:") else target.tls


def _tls_of(host: RunningHost, data_folder: Path) -> DialFiles | None:
    """What TLS needs to reach the host on a data folder over TCP: all is in files of its own."""
    if not host.tls_certificate:
        return None
    from host_service.certificates.errors import CertificateUnusable
    from host_service.certificates.identity import load_certificates, names_of

    certificate = Path(host.tls_certificate)
    try:
        names = names_of(load_certificates(certificate)[0])
    except CertificateUnusable as error:
        raise CommandError(error.message, error.advice) from error
    shows = bool(host.tls_client_ca)
    return DialFiles(
        ca=authority_of(data_folder) or SYSTEM,
        certificate=certificate if shows else None,
        key=Path(host.tls_key) if shows else None,
        name=names[0] if names else "",
    )


def _channel_options(address: str) -> list[tuple[str, int | str]]:
    options: list[tuple[str, int | str]] = [
        ("grpc.max_send_message_length", MESSAGE_BYTES),
        ("grpc.max_receive_message_length", MESSAGE_BYTES),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 1000),
    ]
    if is_loopback(address):
        # A proxy that the environment names is for other machines.
        options.append(("grpc.enable_http_proxy", 0))
    if address.startswith("unix:"):
        options.append(("grpc.default_authority", "localhost"))
    return options


def _api_key(target: Target) -> str:
    api_key = os.environ.get("RUNMESH_API_KEY", "").strip()
    if target.address is None:
        api_key = api_key or operator_key(target.data_folder)
    elif not api_key:
        # The key in the data folder is for the host there, and goes nowhere else.
        raise CommandError(
            f"a host at {target.address} needs a key",
            "set RUNMESH_API_KEY to one that 'runmesh keys create' made there",
        )
    elif not (target.tls or target.insecure or is_loopback(target.address)):
        raise CommandError(
            f"the API key would go to {target.address} without TLS",
            "give --ca FILE, or --ca system; or allow it with --insecure",
        )
    if not _METADATA_VALUE.fullmatch(api_key):
        raise CommandError("RUNMESH_API_KEY has characters that no API key has")
    return api_key
