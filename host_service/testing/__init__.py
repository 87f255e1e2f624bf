"""Tests of runners against the real host, with real stores, in the test's own process.

The host is the one that `runmesh up` runs; it keeps everything in a folder for the test alone. The
runner is served beside it, on a private unix socket, and an agent has it::

    async def test_it_greets_by_name() -> None:
        async with RealHost(Greeter()) as host:
            outcome = await host.dispatch("hello")
        assert outcome.text == "Hello, Ada"

`runner_sdk.testing` needs no more than the SDK, and takes less time: it says whether a runner keeps
to the contract. Here the whole way is tested: bindings, rights, transcript, state.
"""

from host_service.testing.outcome import Outcome
from host_service.testing.real_host import RealHost, RunnerNotServed

__all__ = ["Outcome", "RealHost", "RunnerNotServed"]
