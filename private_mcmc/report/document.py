"""The report itself, a title and blocks: shown on a terminal by rich, as one page of HTML, or as JSON."""

from __future__ import annotations

import dataclasses
import math
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from private_mcmc.records import visible, write_whole
from private_mcmc.report.blocks import (
    Block,
    Code,
    Details,
    Facts,
    Form,
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
from private_mcmc.report.drawing import svg

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.panel import Panel
    from rich.table import Table as RichTable
    from rich.text import Text as RichText


@dataclass(frozen=True)
class Report:
    """Blocks under a title. Whoever builds one puts only public or released values in."""

    title: str
    blocks: tuple[Block, ...]

    def show(self, console: Console | None = None) -> None:
        """Print on a terminal (or on a ``rich.console.Console``)."""
        from rich.console import Console

        out = console if console is not None else Console()
        if self.title:
            out.print(_text(self.title, "bold"))
            out.print()
        for block in self.blocks:
            for renderable in _block(block):
                out.print(renderable)

    def to_html(self, path: str | Path | None = None) -> str:
        """One self-contained HTML page, also written to ``path`` where given."""
        text = html_page(self.title, self.blocks)
        if path is not None:
            write_whole(path, text)
        return text

    def _repr_html_(self) -> str:
        return html_fragment(self.title, self.blocks)

    def to_dict(self) -> dict[str, object]:
        """Plain data: every block with its ``kind``; infinities and NaN, which JSON lacks, as words."""
        return {"title": self.title, "blocks": [json_types(block) for block in self.blocks]}


def json_types(value: Any) -> Any:
    """Dictionaries, lists, strings and finite numbers only, of dataclasses, tuples, arrays and scalars."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: json_types(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {"kind": type(value).__name__.lower(), **fields}
    if hasattr(value, "tolist"):
        return json_types(value.tolist())
    if isinstance(value, dict):
        return {str(key): json_types(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [json_types(item) for item in value]
    if isinstance(value, bool | int | str) or value is None:
        return value
    number = float(value)
    if math.isfinite(number):
        return number
    return "nan" if math.isnan(number) else ("inf" if number > 0 else "-inf")


# A long heading is folded, so that the words below it need not be.
_HEADING = 14
# The longest name that a table keeps on one line.
_NAME = 36
_STYLES = {"good": "green", "bad": "red", "unsure": "yellow", "plain": "bright_black"}


def _text(text: str, style: str = "") -> RichText:
    from rich.text import Text as RichText

    result = RichText(style=style)
    for index, part in enumerate(re.split(r"`([^`]+)`", visible(text))):
        result.append(part, style="bold cyan" if index % 2 else "")
    return result


def _block(block: Block) -> list[RenderableType]:
    from rich.padding import Padding

    match block:
        case Heading(text):
            return ["", _text(text, "bold underline")]
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
            return [*([_text(block.title, "italic")] if block.title else []), _table(block)]
        case Plot():
            return [_plot(block)]
        case Plots(plots):
            return [_plot(plot) for plot in plots]
        case Code(text):
            return [Padding(_text(text.replace("`", "'"), "bold cyan"), (0, 0, 0, 2))]
        case Form(sentences):
            return [_text(f"☐ {sentence}") for sentence in sentences]
        case Details(summary):
            return [_text(f"▸ {summary} (in the HTML report)", "bright_black")]


def _verdict(block: Verdict) -> Panel:
    from rich.console import Group
    from rich.panel import Panel

    lines = [_text(block.line, "bold"), *(_text(f"• {reason}") for reason in block.reasons)]
    word = _text(block.word.upper(), "bold")
    return Panel(Group(*lines), title=word, title_align="left", border_style=_STYLES[block.tone])


def _facts(block: Facts) -> RichTable:
    from rich.table import Table as RichTable

    title = _text(block.title) if block.title else None
    grid = RichTable(box=None, show_header=False, pad_edge=False, title=title, title_justify="left")
    grid.add_column(style="bright_black", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in block.items:
        grid.add_row(_text(name), _text(cell(value)))
    return grid


def _table(block: Table) -> RichTable:
    from rich import box
    from rich.table import Table as RichTable

    table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
    for index, name in enumerate(block.columns):
        justify: Literal["left", "right"] = "right" if right_aligned(block, index) else "left"
        longest = max([_HEADING, *(len(cell(row[index])) for row in block.rows)])
        named = index == 0 and longest <= _NAME  # names stay on one line, what is beside them gives way
        heading = _text(textwrap.fill(name, longest))
        table.add_column(heading, justify=justify, overflow="fold", no_wrap=named)
    for row in block.rows:
        table.add_row(*(_text(cell(value)) for value in row))
    return table


def _plot(plot: Plot) -> RichText:
    words = f": {plot.description}" if plot.description else " (drawn in the HTML report)"
    return _text(f"▚ {plot.title}{words}", "bright_black")


_HERE = resources.files("private_mcmc.report")
STYLE = "\n" + _HERE.joinpath("report.css").read_text("utf-8")
# A chart that has no more places is small on paper.
_SHORT = 12


def html_page(title: str, blocks: tuple[Block, ...]) -> str:
    """A complete HTML document."""
    return str(_template().page(title, blocks))


def html_fragment(title: str, blocks: tuple[Block, ...]) -> str:
    """The report as one element with its style, to stand inside another page (a notebook)."""
    return str(_template().fragment(title, blocks))


@cache
def _template() -> Any:
    """The macros of ``report.html.jinja``, which escape whatever they are given."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup, escape

    def inline(text: str) -> Markup:
        """Text between backticks in a fixed-width face."""
        return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(visible(text)))))

    def drawn(plot: Plot, name: str, size: tuple[float, float]) -> Markup:
        words = escape(visible(plot.description or plot.title))
        tall = " tall" * (len(plot.y_ticks) > _SHORT)
        tag = f'<svg class="{name}{tall}" role="img" aria-label="{words}"'
        return Markup(svg(plot, size).replace("<svg", tag, 1))

    def column_classes(table: Table) -> list[Markup]:
        columns = range(len(table.columns))
        return [Markup(' class="num"' if right_aligned(table, index) else "") for index in columns]

    made = Environment(autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True)
    made.filters |= {"inline": inline, "cell": cell, "drawn": drawn, "visible": visible}
    made.filters["column_classes"] = column_classes
    made.globals["style"] = STYLE
    return made.from_string(_HERE.joinpath("report.html.jinja").read_text("utf-8")).module


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
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    # A console of its own: one that a bar could not be drawn on stays taken for all later bars.
    bar = Progress(*columns, console=Console(), transient=False)
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


def announce(words: str) -> None:
    """A line on standard error; none where that is closed."""
    with suppress(*_CLOSED):
        print(visible(words), file=sys.stderr)


_SAID: ContextVar[Callable[[str], None]] = ContextVar("said", default=lambda words: None)


def say(words: str) -> None:
    """What is being tried, on the line of ``telling``; nothing without one."""
    _SAID.get()(words)


@contextmanager
def telling(shown: bool) -> Iterator[None]:
    """A line on standard error that ``say`` changes and that is gone in the end; none without a terminal."""
    if not (shown and sys.stderr is not None and sys.stderr.isatty()):
        yield
        return
    from rich.console import Console
    from rich.status import Status

    line = Status("planning", console=Console(stderr=True))
    before = _SAID.set(lambda words: line.update(words))
    try:
        with suppress(*_CLOSED):
            line.start()
        yield
    finally:
        _SAID.reset(before)
        with suppress(*_CLOSED):
            line.stop()
