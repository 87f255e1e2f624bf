"""HostAPIService: what a run's runner may ask of the host.

The tokens of each call are checked on its way in. What stands behind the calls comes one capability
at a time; a call without one is answered NOT_IMPLEMENTED, and only to a run that exists.
"""

from __future__ import annotations

from runmesh.v1 import host_api_pb2_grpc

from host_service.interceptors import refuse_missing


@refuse_missing
class HostAPIServicer(host_api_pb2_grpc.HostAPIServiceServicer):
    """Every call of the contract, by the capabilities that this host has."""
