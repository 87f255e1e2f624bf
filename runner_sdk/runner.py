"""What an author writes: a class with `run`, or one decorated function."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, overload

from runner_sdk.context import RunContext


class AgentRunner(ABC):
    """A runner: answers events.

    Write `run` in one of four forms:

    - `async def` that yields results: each is sent as soon as it is yielded;
    - `async def` that returns one result, or None;
    - `def` that yields results, or returns one: it runs in a thread of its own, so it may block.

    A run that ends without a terminal result has ended well. An exception ends it as failed:
    RunFailure with its own code, anything else with `runner.error` and the exception's text.
    When the caller leaves, the deadline passes or the host interrupts, `asyncio.CancelledError`
    is raised where the code stands, at an `await` or a `yield`; what it yields then, on its way
    out, is still sent after an interrupt. Plain code meets it at its `ctx.block_on` or its next
    `yield`, and can look at `ctx.interrupted` in between.

    One object serves all runs at once: what belongs to a run stays in `run`.

    Attributes:
        name: Which of the plugin's AgentRunner components this is: the last part of the runner's
            id.
        handles_interrupt: Whether `run` watches `ctx.interrupted` and ends by itself when the host
            interrupts. It then has the host's grace before it is cancelled; without, it is
            cancelled at once.
    """

    name: str = "default"
    handles_interrupt: bool = False

    @abstractmethod
    def run(self, ctx: RunContext) -> Any:
        """Answers one event.

        Args:
            ctx: The event, what the run may use, and the constructors of results.
        """


Function = Callable[[RunContext], Any]


class FunctionRunner(AgentRunner):
    """A runner made of one function. It can still be called as that function."""

    def __init__(self, function: Function, *, name: str, handles_interrupt: bool) -> None:
        self.name = name
        self.handles_interrupt = handles_interrupt
        self.function = function
        self.__doc__ = function.__doc__

    def run(self, ctx: RunContext) -> Any:
        """Calls the function."""
        return self.function(ctx)

    def __call__(self, ctx: RunContext) -> Any:
        """Calls the function."""
        return self.function(ctx)


def code_of(runner: AgentRunner) -> Function:
    """Returns the author's own code, whose form says how it is to be run."""
    return runner.function if isinstance(runner, FunctionRunner) else runner.run


@overload
def agent_runner(function: Function, /) -> FunctionRunner: ...


@overload
def agent_runner(
    *, name: str = "default", handles_interrupt: bool = False
) -> Callable[[Function], FunctionRunner]: ...


def agent_runner(
    function: Function | None = None,
    /,
    *,
    name: str = "default",
    handles_interrupt: bool = False,
) -> FunctionRunner | Callable[[Function], FunctionRunner]:
    """Makes a runner of one function, in any of the forms that `AgentRunner.run` may have.

    Args:
        function: The function, when the decorator is used without arguments.
        name: Which of the plugin's AgentRunner components it is.
        handles_interrupt: As in AgentRunner.
    """
    if function is not None:
        return FunctionRunner(function, name=name, handles_interrupt=handles_interrupt)
    return lambda decorated: FunctionRunner(
        decorated, name=name, handles_interrupt=handles_interrupt
    )
