"""`runmesh runners restart, drain, resume`: what operators do with the processes of plugins."""

from typing import TYPE_CHECKING, Annotated

import typer

from host_service.cli.failures import CommandError
from host_service.cli.options import (
    AddressOption,
    CaOption,
    CertKeyOption,
    CertOption,
    DataOption,
    InsecureOption,
    target,
)

if TYPE_CHECKING:
    from host_service.cli.connection import HostConnection

InstanceArgument = Annotated[
    str,
    typer.Argument(
        metavar="INSTANCE",
        help="Its id as 'runmesh runners list' shows it, or the beginning of one.",
    ),
]


def add_to(group: typer.Typer) -> None:
    """Adds the commands to the group of runners."""
    group.command("restart")(restart)
    group.command("drain")(drain)
    group.command("resume")(resume)


def restart(
    plugin: Annotated[str, typer.Argument(metavar="AUTHOR/NAME", help="The plugin.")],
    data: DataOption = None,
    address: AddressOption = None,
    ca: CaOption = None,
    cert: CertOption = None,
    cert_key: CertKeyOption = None,
    insecure: InsecureOption = False,
) -> None:
    """Start another process of a plugin that the host runs.

    When it serves, the one before it finishes the runs it has, and is ended; if it does not come
    up, the one before it serves on. A plugin that is held after crashes is started again.
    """
    from runmesh.admin.v1 import plugins_pb2

    from host_service.cli.connection import CALL_SECONDS, call_host

    async def work(host: "HostConnection") -> None:
        await host.admin.RestartPlugin(
            plugins_pb2.RestartPluginRequest(plugin_id=plugin),
            metadata=host.metadata,
            timeout=CALL_SECONDS,
        )

    advice = {"NOT_FOUND": "'runmesh runners list' shows which plugins the host runs"}
    call_host(target(data, address, insecure, ca, cert, cert_key), work, advice=advice)
    print(f"another process of {plugin} is being started: see 'runmesh runners list'")


def drain(
    instance: InstanceArgument,
    data: DataOption = None,
    address: AddressOption = None,
    ca: CaOption = None,
    cert: CertOption = None,
    cert_key: CertKeyOption = None,
    insecure: InsecureOption = False,
) -> None:
    """Give an instance no more runs; it finishes those it has.

    Lasts until 'runmesh runners resume', or until its process or its connection is another.
    """
    from runmesh.admin.v1 import plugins_pb2

    from host_service.cli.connection import CALL_SECONDS, call_host

    async def work(host: "HostConnection") -> tuple[str, int]:
        found = await _find(host, instance)
        answer = await host.admin.DrainInstance(
            plugins_pb2.DrainInstanceRequest(instance_id=found),
            metadata=host.metadata,
            timeout=CALL_SECONDS,
        )
        return found, answer.active_runs

    found, runs = call_host(target(data, address, insecure, ca, cert, cert_key), work)
    print(f"instance {found} gets no more runs; it works on {runs}")


def resume(
    instance: InstanceArgument,
    data: DataOption = None,
    address: AddressOption = None,
    ca: CaOption = None,
    cert: CertOption = None,
    cert_key: CertKeyOption = None,
    insecure: InsecureOption = False,
) -> None:
    """Give an instance that was drained runs again."""
    from runmesh.admin.v1 import plugins_pb2

    from host_service.cli.connection import CALL_SECONDS, call_host

    async def work(host: "HostConnection") -> str:
        found = await _find(host, instance)
        await host.admin.ResumeInstance(
            plugins_pb2.ResumeInstanceRequest(instance_id=found),
            metadata=host.metadata,
            timeout=CALL_SECONDS,
        )
        return found

    found = call_host(target(data, address, insecure, ca, cert, cert_key), work)
    print(f"instance {found} gets runs again")


async def _find(host: "HostConnection", beginning: str) -> str:
    """Returns the one instance whose id begins so.

    Raises:
        CommandError: There is none, or more than one.
    """
    from runmesh.v1 import discovery_pb2

    from host_service.cli.connection import CALL_SECONDS

    mesh = await host.discovery.ListRunners(
        discovery_pb2.ListRunnersRequest(), metadata=host.metadata, timeout=CALL_SECONDS
    )
    ids = {each.instance_id for each in mesh.instances if each.instance_id}
    found = [each for each in ids if each == beginning] or [
        each for each in ids if beginning and each.startswith(beginning)
    ]
    if len(found) == 1:
        return found[0]
    how_many = (
        "several instances have ids that begin" if found else "no instance has an id that begins"
    )
    raise CommandError(f"{how_many} with {beginning!r}", "see 'runmesh runners list'")
