"""`runmesh runs explain`: why a run came out as it did."""

from typing import TYPE_CHECKING

from host_service.cli.options import (
    AddressOption,
    CaOption,
    CertKeyOption,
    CertOption,
    DataOption,
    InsecureOption,
    JsonOption,
    RunArgument,
    target,
)

if TYPE_CHECKING:
    from runmesh.admin.v1 import explain_pb2

    from host_service.cli.connection import HostConnection

_ADVICE = {"NOT_FOUND": "'runmesh runs list' shows the runs"}


def explain_run(
    run: RunArgument,
    json: JsonOption = False,
    data: DataOption = None,
    address: AddressOption = None,
    ca: CaOption = None,
    cert: CertOption = None,
    cert_key: CertKeyOption = None,
    insecure: InsecureOption = False,
) -> None:
    """Explain why a run came out as it did.

    What arrived, which binding won and over which, what was granted and what was cut by whom, every
    call of the host and every result, where the time went, and what to do next.
    """
    from runmesh.admin.v1 import explain_pb2

    from host_service.cli.connection import CALL_SECONDS, call_host
    from host_service.cli.explain_display import print_explanation
    from host_service.cli.json_output import print_json, to_json

    async def work(host: "HostConnection") -> "explain_pb2.ExplainRunResponse":
        request = explain_pb2.ExplainRunRequest(run_id=run)
        return await host.admin.ExplainRun(request, metadata=host.metadata, timeout=CALL_SECONDS)

    told = call_host(target(data, address, insecure, ca, cert, cert_key), work, advice=_ADVICE)
    if json:
        print_json(to_json(told))
    else:
        print_explanation(told)
