"""The Python SDK for runner authors: write an agent, serve it, test it.

::

    from runner_sdk import RunContext, agent_runner, serve


    @agent_runner
    async def answer(ctx: RunContext):
        yield ctx.delta("You said: ")
        yield ctx.delta(ctx.text)


    if __name__ == "__main__":
        serve(answer)
"""

from runner_sdk._attach import Attach
from runner_sdk._tls import Tls
from runner_sdk.context import RunContext
from runner_sdk.errors import HostCallError, ManifestError, RunFailure, SdkError
from runner_sdk.host import HostClient
from runner_sdk.manifest import Manifest
from runner_sdk.results import Result
from runner_sdk.runner import AgentRunner, agent_runner
from runner_sdk.serve import serve

__version__ = "0.1.0"

__all__ = [
    "AgentRunner",
    "Attach",
    "HostCallError",
    "HostClient",
    "Manifest",
    "ManifestError",
    "Result",
    "RunContext",
    "RunFailure",
    "SdkError",
    "Tls",
    "agent_runner",
    "serve",
]
