"""Lets most options be read without pydantic, whose import takes a third of a short command's time.

Typer asks pydantic for every value, text and absent ones included. Here those, and the values of
options with a parser of their own, are read directly; everything else is still Typer's to read.
"""

from collections.abc import Callable
from typing import Any


def read_quickly(command: Any) -> None:
    """Changes how a command, and every command under it, reads its options and arguments.

    Args:
        command: What Typer made of the application.
    """
    for child in getattr(command, "commands", {}).values():
        read_quickly(child)
    # Asked for the parameters, and not looked through: the help option is made when it is needed.
    command.get_params = _QuickParameters(command.get_params)


class _QuickParameters:
    """Gives the parameters of a command, each with a quick reader."""

    def __init__(self, typers_own: Callable[[Any], list[Any]]) -> None:
        self._typers_own = typers_own

    def __call__(self, ctx: Any) -> list[Any]:
        parameters = self._typers_own(ctx)
        for parameter in parameters:
            if not isinstance(parameter.get_runtime_param, _QuickReader):
                parameter.get_runtime_param = _QuickReader(parameter.get_runtime_param)
        return parameters


class _QuickReader:
    """Reads the values of one parameter.

    Args:
        typers_own: Gives Typer's way to read them.
    """

    def __init__(self, typers_own: Callable[[], Any]) -> None:
        self._typers_own = typers_own

    def __call__(self) -> "_QuickReader":
        return self

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Turns what was given for the parameter into what its command takes."""
        several = param.multiple or param.nargs == -1
        if value is None:
            return () if several else None
        expected = param.type_descriptor
        parse = expected.parameter_info.parser or (str if expected.annotation is str else None)
        if parse is None:
            return self._typers_own().coerce(value, param=param, ctx=ctx)
        return [parse(item) for item in value] if several else parse(value)
