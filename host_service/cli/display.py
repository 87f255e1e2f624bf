"""Tables and notes for people: coloured on a terminal, plain in a pipe, never cut."""

import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from host_service.cli.failures import visible

# In a pipe a row stays one line however long it is: programs read it, or a pager folds it.
_PIPE_WIDTH = 100_000

STYLES = {
    "completed": "green",
    "failed": "red",
    "timed out": "red",
    "cancelled": "yellow",
    "serving": "green",
    "refused": "red",
    "incompatible": "red",
}


def output() -> Console:
    """Where results go."""
    return _console(error=False)


def notes() -> Console:
    """Where remarks go that are not the result."""
    return _console(error=True)


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    empty: str = "",
    after_blank_line: bool = False,
) -> None:
    """Prints rows under their headings, or what to say when there are none."""
    if not rows:
        notes().print(Text(empty, style="dim"))
        return
    if after_blank_line:
        print()
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(_cell(value) for value in row))
    _print(table)


def print_facts(facts: Sequence[tuple[str, str]]) -> None:
    """Prints names with their values, those without a value left out."""
    told = [(name, value) for name, value in facts if value]
    width = max((len(name) for name, _ in told), default=0)
    console = output()
    for name, value in told:
        line = Text(f"{name:{width}}  ", style="dim")
        line.append_text(_cell(value))
        console.print(line, soft_wrap=True)


def print_wrapped(facts: Sequence[tuple[str, str]]) -> None:
    """Prints names with their values as `print_facts` does, long values folded under themselves."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in facts:
        if value:
            grid.add_row(name, _cell(value))
    _print(grid)


def _print(table: Table) -> None:
    console = output()
    if console.is_terminal:
        console.print(table)
        return
    with console.capture() as capture:
        console.print(table)
    print("\n".join(line.rstrip() for line in capture.get().splitlines()))


def words(enum: Any, value: int) -> str:
    """An enum's value as words: `RUN_STATUS_TIMED_OUT` is `timed out`; an unknown one its number.

    Args:
        enum: The generated enum.
        value: The value, which a later version may have added.
    """
    names = enum.DESCRIPTOR.values_by_number
    if value not in names:
        return str(value)
    prefix = names[0].name.removesuffix("UNSPECIFIED")
    word: str = names[value].name.removeprefix(prefix)
    return word.lower().replace("_", " ")


def yes_or_no(value: bool) -> str:
    """A truth as a word."""
    return "yes" if value else "no"


def _cell(value: str) -> Text:
    return Text(visible(value), style=STYLES.get(value, "not dim"))


def _console(*, error: bool) -> Console:
    stream = sys.stderr if error else sys.stdout
    width = None if stream.isatty() else _PIPE_WIDTH
    return Console(file=stream, highlight=False, markup=False, emoji=False, width=width)
