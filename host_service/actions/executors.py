"""What executes actions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from stores.actions import ActionRecord


class ExecutionFailed(Exception):
    """An action was not done, or nobody knows whether it was; its text says so to people."""


class ActionExecutor(Protocol):
    """Does one kind of action."""

    async def execute(self, action: ActionRecord) -> ExecutorAnswer:
        """Do it, once, within a time of its own choice.

        It is called once for an action, and never again, whatever comes of it. Whoever the action
        reaches should know it by its id all the same.

        Raises:
            ExecutionFailed: It was not done, or that is not known.
        """


class ExecutorAnswer:
    """What came of an execution that went well.

    Attributes:
        result_json: What the executor answered, one JSON value; None for nothing.
        detail: More, for people.
    """

    __slots__ = ("detail", "result_json")

    def __init__(self, result_json: str | None = None, detail: str = "") -> None:
        self.result_json = result_json
        self.detail = detail


class ActionExecutors:
    """The executors of this host, by the name of the action.

    Args:
        by_action: They.
    """

    def __init__(self, by_action: Mapping[str, ActionExecutor] | None = None) -> None:
        self._by_action = dict(by_action or {})

    def find(self, action: str) -> ActionExecutor | None:
        """Return the executor of an action, or None."""
        return self._by_action.get(action)
