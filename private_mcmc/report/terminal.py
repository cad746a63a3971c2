"""A report on a terminal, and a progress bar that knows step numbers and nothing else, by rich."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from private_mcmc.report.blocks import (
    Block,
    Facts,
    Heading,
    Note,
    Plot,
    Plots,
    Table,
    Text,
    Verdict,
    cell,
    right_aligned,
)

_STYLES = {"good": "green", "bad": "red", "unsure": "yellow", "plain": "bright_black"}


def show(title: str, blocks: tuple[Block, ...], console: Any = None) -> None:
    """Print the report on ``console`` (a ``rich.console.Console``; by default a new one)."""
    from rich.console import Console

    out = console if console is not None else Console()
    if title:
        out.print(_text(title, "bold"))
        out.print()
    for block in blocks:
        for renderable in _block(block):
            out.print(renderable)


def _text(text: str, style: str = "") -> Any:
    from rich.text import Text as RichText

    result = RichText(style=style)
    for index, part in enumerate(re.split(r"`([^`]+)`", text)):
        result.append(part, style="bold cyan" if index % 2 else "")
    return result


def _block(block: Block) -> list[Any]:
    from rich.padding import Padding

    match block:
        case Heading(text, level):
            return ["", _text(text, "bold underline" if level <= 2 else "bold")]
        case Text(text):
            return [_text(text)]
        case Note(text, tone):
            mark = _text("▌ ", _STYLES[tone])
            mark.append_text(_text(text, ""))
            return [Padding(mark, (0, 0, 0, 1))]
        case Verdict():
            return [_verdict(block)]
        case Facts():
            return [_facts(block)]
        case Table():
            return [_table(block)]
        case Plot():
            return [_plot(block)]
        case Plots(plots):
            return [_plot(plot) for plot in plots]


def _verdict(block: Verdict) -> Any:
    from rich.console import Group
    from rich.panel import Panel

    lines = [_text(block.line, "bold"), *(_text(f"• {reason}") for reason in block.reasons)]
    word = _text(block.word.upper(), "bold")
    return Panel(Group(*lines), title=word, title_align="left", border_style=_STYLES[block.tone])


def _facts(block: Facts) -> Any:
    from rich.table import Table as RichTable

    title = block.title or None
    grid = RichTable(box=None, show_header=False, pad_edge=False, title=title, title_justify="left")
    grid.add_column(style="bright_black", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in block.items:
        grid.add_row(_text(name), _text(cell(value)))
    return grid


def _table(block: Table) -> Any:
    from rich import box
    from rich.table import Table as RichTable

    table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, title=block.title or None, title_justify="left")
    for index, name in enumerate(block.columns):
        right = right_aligned(block, index)
        table.add_column(name, justify="right" if right else "left", overflow="fold")
    for row in block.rows:
        table.add_row(*(_text(cell(value)) for value in row))
    return table


def _plot(plot: Plot) -> Any:
    words = f": {plot.description}" if plot.description else " (drawn in the HTML report)"
    return _text(f"▚ {plot.title}{words}", "bright_black")


# What drawing on a closed output raises; rich exits the process for a broken pipe.
_CLOSED = OSError, ValueError, SystemExit


@contextmanager
def progress(what: str, num_steps: int, shown: bool) -> Iterator[Callable[[int], None]]:
    """Yield a function to be told how many steps are done; it draws a bar if ``shown``.

    A bar that cannot be drawn (standard output is closed) ends no run.
    """
    if not shown:
        yield lambda done: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    bar = Progress(*columns, transient=False)
    task = bar.add_task(what, total=num_steps)

    drawn = False
    with suppress(*_CLOSED):
        bar.start()
        drawn = True
    try:
        yield lambda done: bar.update(task, completed=done)
    finally:
        with suppress(*_CLOSED):
            if drawn:
                bar.stop()
