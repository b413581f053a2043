"""What a person sees on the terminal: results on standard output, progress and notes on standard error.

Progress shows a rate and the time left, and is silent when standard error is not a terminal.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Ticker", "note", "output", "progress", "say", "show_table", "track"]

T = TypeVar("T")


def output(stderr: bool = False) -> Console:
    """A rich console on standard output (or error), made anew so that redirection is respected."""
    from rich.console import Console

    # A pipe or a file has no width of its own: lines are left whole there instead of being folded at 80.
    stream = sys.stderr if stderr else sys.stdout
    return Console(
        stderr=stderr, highlight=False, soft_wrap=not stream.isatty(), width=None if stream.isatty() else 160
    )


def say(text: str) -> None:
    """Print a result line; square brackets are printed as they are."""
    output().print(text, markup=False)


def note(text: str) -> None:
    """Print a remark (a skipped file, an assumption) on standard error."""
    output(stderr=True).print(f"Note: {text}", markup=False)


def show_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table; numbers are set to the right."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    rows = [list(row) for row in rows]
    table = Table(title=Text(title), box=box.SIMPLE_HEAD, title_justify="left")
    for i, column in enumerate(columns):
        numeric = bool(rows) and all(isinstance(row[i], int | float) or row[i] is None for row in rows)
        table.add_column(Text(column), justify="right" if numeric else "left")
    for row in rows:
        table.add_row(*(Text("–" if cell is None else str(cell)) for cell in row))
    output().print(table)


class Ticker:
    """Counts finished items; made by `progress`."""

    def __init__(self, advance) -> None:  # type: ignore[no-untyped-def]
        self._advance = advance

    def step(self, count: int = 1) -> None:
        """Say that `count` more items are done."""
        self._advance(count)


@contextmanager
def progress(label: str, total: int | None, unit: str = "items") -> Iterator[Ticker]:
    """A progress bar with rate and time left on a terminal, silence elsewhere.

    >>> with progress("reading", 3) as ticker:
    ...     ticker.step()
    """
    if not sys.stderr.isatty():
        yield Ticker(lambda count: None)
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    class _Rate(TextColumn):
        def render(self, task):  # type: ignore[no-untyped-def]
            speed = task.finished_speed or task.speed
            from rich.text import Text

            return Text(f"{speed:.1f} {unit}/s" if speed else "")

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        _Rate(""),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=output(stderr=True),
        transient=False,
    )
    with bar:
        task = bar.add_task(label, total=total)
        yield Ticker(lambda count: bar.advance(task, count))


def track(items: Iterable[T], label: str, total: int | None = None, unit: str = "items") -> Iterator[T]:
    """Iterate with a progress bar.

    >>> list(track([1, 2], "counting"))
    [1, 2]
    """
    if total is None and isinstance(items, Sequence):
        total = len(items)
    with progress(label, total, unit) as ticker:
        for item in items:
            yield item
            ticker.step()
