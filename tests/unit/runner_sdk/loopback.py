"""A runner of a test, served on loopback by a stand-in host."""

from runner_sdk import AgentRunner, Manifest
from runner_sdk.testing import StandInHost


def serving(*runners: AgentRunner, max_concurrent_runs: int = 0) -> StandInHost:
    """Serves runners that have no manifest files."""
    manifest = Manifest.minimal("acme/test", *(runner.name for runner in runners))
    return StandInHost(*runners, manifest=manifest, max_concurrent_runs=max_concurrent_runs)
