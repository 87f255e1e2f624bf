"""AttachService: for runners that dial the host.

This host issues no attach tokens yet, and so offers none of it.
"""

from __future__ import annotations

from runmesh.v1 import attach_pb2_grpc

from host_service.interceptors import refuse_missing


@refuse_missing
class AttachServicer(attach_pb2_grpc.AttachServiceServicer):
    """Answers NOT_IMPLEMENTED."""
