"""Tests of runners: the runner on a real loopback server, called by a host that stands in."""

from runmesh.v1.result_pb2 import RunResult

from runner_sdk._wire import Unchecked

__all__ = ["RunResult", "Unchecked"]
