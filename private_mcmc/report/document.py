"""The report itself, a title and blocks: shown on a terminal by rich, as one page of HTML, or as JSON."""

from __future__ import annotations

import io
import re
import sys
import textwrap
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from private_mcmc.records import Record
from private_mcmc.report.blocks import (
    Block,
    Code,
    Details,
    Drawn,
    Facts,
    Form,
    Heading,
    Interval,
    Line,
    Note,
    Plot,
    Rule,
    Table,
    Text,
    Verdict,
    cell,
    json_types,
    right_aligned,
)
from private_mcmc.system import visible, write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
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
            for renderable in _block(block, out.width):
                out.print(renderable)

    def to_html(self, path: str | Path | None = None) -> str:
        """One self-contained HTML page, also written to ``path`` where given."""
        text = str(_template().page(self.title, self.blocks))
        if path is not None:
            write_whole(path, text)
        return text

    def _repr_html_(self) -> str:
        return str(_template().fragment(self.title, self.blocks))

    def to_dict(self) -> dict[str, object]:
        """Plain data: every block with its ``kind``; infinities and NaN, which JSON lacks, as words."""
        return {"title": self.title, "blocks": [json_types(block) for block in self.blocks]}


class Reported:
    """What is shown as its report is, on a terminal and in a notebook."""

    @abstractmethod
    def report(self) -> Report:
        """In words and numbers."""

    def show(self, console: Console | None = None) -> None:
        """Print on a terminal (or on a ``rich.console.Console``)."""
        self.report().show(console)

    def _repr_html_(self) -> str:
        return self.report()._repr_html_()


# A long heading is folded, so that the words below it need not be.
_HEADING = 14
# The longest name that a table keeps on one line, and the longest word that no table breaks.
_NAME, _WORD = 36, 20
_INTERVAL = re.compile(r"\S+ to \S+")
_STYLES = {"good": "green", "bad": "red", "unsure": "yellow", "plain": "bright_black"}


def _text(text: str, style: str = "") -> RichText:
    from rich.text import Text as RichText

    result = RichText(style=style)
    for index, part in enumerate(re.split(r"`([^`]+)`", visible(text))):
        result.append(part, style="bold cyan" if index % 2 else "")
    return result


def _block(block: Block, room: int) -> list[RenderableType]:
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
            return [*([_text(block.title, "italic")] if block.title else []), *_table(block, room)]
        case Plot():
            words = f": {block.description}" if block.description else " (drawn in the HTML report)"
            return [_text(f"▚ {block.title}{words}", "bright_black")]
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


def _table(block: Table, room: int) -> list[RenderableType]:
    """Rows side by side. Where words would have to be broken, in parts of columns, each after the first one;
    of one row as names and values.
    """
    from rich import box
    from rich.table import Table as RichTable

    columns = [[name, *(cell(row[k]) for row in block.rows)] for k, name in enumerate(block.columns)]
    fitting = [_widths(columns[:k], room - 3 * k + 1) for k in range(1, len(columns) + 1)]
    if (widths := fitting[-1]) is None:
        besides, at_once = len(columns) - 1, sum(one is not None for one in fitting) - 1
        if at_once < 1 or len(block.rows) == 1:
            rows = (Facts(tuple(zip(block.columns, row, strict=True))) for row in block.rows)
            return [part for row in rows for part in (_facts(row), "")]
        cut = 1 + -(-besides // -(-besides // at_once))
        parts = range(cut), (0, *range(cut, len(columns)))
        return [one for part in parts for one in _table(_some_columns(block, part), room)]
    table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
    for index, (name, width) in enumerate(zip(block.columns, widths, strict=True)):
        justify: Literal["left", "right"] = "right" if right_aligned(block, index) else "left"
        table.add_column(_text(name), justify=justify, overflow="fold", width=width)
    for row in block.rows:
        table.add_row(*(_text(cell(value)) for value in row))
    return [table]


def _some_columns(block: Table, kept: Sequence[int]) -> Table:
    rows = tuple(tuple(row[k] for k in kept) for row in block.rows)
    return Table(tuple(block.columns[k] for k in kept), rows)


def _widths(columns: Sequence[Sequence[str]], room: int) -> list[int] | None:
    """Widths of columns, headings first, that break no word of ``_WORD`` letters; ``None`` if there are none.

    Intervals stay on one line, and names, of the first column, where they can; the rest gives way.
    """
    words = [
        [len(word) for text in column for word in ([text] if _INTERVAL.fullmatch(text) else text.split())]
        for column in columns
    ]
    for longest in (_NAME, _WORD):
        widths = [min(max(each, default=1), longest) for each in words]
        if sum(widths) <= room:
            break
    most = [
        max(width, min(len(name), _HEADING), *map(len, cells))
        for width, (name, *cells) in zip(widths, columns, strict=True)
    ]
    if (left := room - sum(widths)) >= most[0] - widths[0] and most[0] <= _NAME:
        widths[0] = most[0]
    for _ in range(room - sum(widths)):
        widest = max(range(len(widths)), key=lambda k: most[k] / widths[k])
        widths[widest] += most[widest] > widths[widest]
    return widths if left >= 0 else None


_HERE = resources.files("private_mcmc.report")
STYLE = "\n" + _HERE.joinpath("report.css").read_text("utf-8")
# An interval, or a short word with a hyphen after a digit, or after ε.
_WHOLE = re.compile(rf"^{_INTERVAL.pattern}$|" r"(?<![\w.-])(?=[\w.-]{3,24}(?![\w.-]))[\w.]*[\dε]-[\w.-]*\w")
# A chart that has no more places is small on paper.
_SHORT = 12


@cache
def _template() -> Any:
    """The macros of ``report.html.jinja``, which escape whatever they are given."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup, escape

    def inline(text: str) -> Markup:
        """Text between backticks in a fixed-width face; dates, intervals and ``0.2-GDP`` stay on a line."""
        words = _WHOLE.sub(r'<span class="whole">\g<0></span>', str(escape(visible(text))))
        return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", words))

    def drawn(plot: Plot) -> Markup:
        words = escape(visible(plot.description or plot.title))
        tall = ' class="tall"' * (len(plot.y_ticks) > _SHORT)
        return Markup(svg(plot).replace("<svg", f'<svg{tall} role="img" aria-label="{words}"', 1))

    def column_classes(table: Table) -> list[Markup]:
        columns = range(len(table.columns))
        return [Markup(' class="num"' if right_aligned(table, index) else "") for index in columns]

    made = Environment(autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True)
    made.filters |= {"inline": inline, "cell": cell, "drawn": drawn, "visible": visible}
    made.filters["column_classes"] = column_classes
    made.globals["style"] = STYLE
    return made.from_string(_HERE.joinpath("report.html.jinja").read_text("utf-8")).module


# Inches of a chart, and of what stands around named places and of each line of them.
_WIDTH, _HEIGHT, _AROUND, _PLACE = 6.4, 3.7, 1.0, 0.24
# Letters that have room: in a legend of two columns, on an axis's name, on a named place.
_LEGEND_LETTERS, _NAME_LETTERS, _TICK_LETTERS = 46, 64, 32
_DASHES = {"solid": "-", "dashed": (0, (5, 2.5)), "dotted": (0, (1.2, 1.8)), "none": "none"}
# Colours by the names of CSS variables, which take their place: one SVG follows light and dark.
_COLOURS = {
    **{"ink": "#2b3036", "faint": "#c9ced6", "card": "#fefefe"},
    **{"c0": "#0067a5", "c1": "#c8500a", "c2": "#00805c", "c3": "#9a4a86", "c4": "#7a6a00"},
}


def figure(plot: Plot) -> Figure:
    """A matplotlib figure of ``plot``, through its object interface: no display, nothing global."""
    import matplotlib
    from matplotlib.figure import Figure

    places = [
        (at, textwrap.fill(visible(name).replace("[", " ["), _TICK_LETTERS)) for at, name in plot.y_ticks
    ]
    lines = sum(name.count("\n") + 1 for _, name in places)
    # Between two dollars matplotlib would read formulas.
    with matplotlib.rc_context({"text.parse_math": False}):
        size = (_WIDTH, max(_HEIGHT, _AROUND + _PLACE * lines))
        result = Figure(figsize=size, layout="constrained", facecolor="none")
        axes = result.add_subplot(facecolor="none")
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set_color(_COLOURS["faint"])
        axes.grid(visible=True, color=_COLOURS["faint"], linewidth=0.5, alpha=0.7)
        axes.set_axisbelow(True)
        for drawn in plot.drawn:
            _draw(axes, drawn)
        # Last: before 3.11, matplotlib mistakes how far horizontal lines reach on a scale of logarithms.
        axes.set(xscale="log" if plot.x_log else "linear", yscale="log" if plot.y_log else "linear")
        if plot.x_log:
            _in_plain_numbers(axes)
        if places:
            axes.set_yticks([at for at, _ in places], [name for _, name in places])
            axes.minorticks_off()
        axes.set(xlim=plot.x_range, ylim=plot.y_range)
        _name_axes(result, axes, plot)
        for drawn in plot.drawn:
            if isinstance(drawn, Rule):
                _name_rule(axes, drawn)
    return result


def svg(plot: Plot) -> str:
    """An inline ``<svg>`` of ``plot`` whose colours are CSS variables and whose text is text."""
    import matplotlib

    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": plot.title}):
        figure(plot).savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"font: ([^;\"]*?)'[^;\"]*\"", r'font: \1inherit"', text)
    for name, colour in _COLOURS.items():
        text = text.replace(colour, f"var(--{name})")
    return text


def _draw(axes: Axes, drawn: Drawn) -> None:
    if isinstance(drawn, Rule):
        rule = axes.axvline if drawn.axis == "x" else axes.axhline
        rule(drawn.at, color=_COLOURS["ink"], linewidth=1, linestyle=_DASHES["dashed"])
        return
    given: Record = {"color": _COLOURS[f"c{drawn.color % 5}"], "label": visible(drawn.label) or None}
    if isinstance(drawn, Line):
        given |= {"linestyle": _DASHES[drawn.style], "marker": "o" if drawn.marker else None}
        axes.plot(drawn.x, drawn.y, linewidth=1.8, markersize=2.6 if drawn.style == "none" else 4.5, **given)
    elif isinstance(drawn, Interval):
        axes.hlines(drawn.y, drawn.low, drawn.high, linewidth=2.2, **given)
        axes.plot(drawn.middle, drawn.y, "o", color=given["color"], markersize=4.5)


def _name_rule(axes: Axes, rule: Rule) -> None:
    """Along a rule, on the side that has room; above a level, at its right end."""
    place: Record
    if rule.axis == "x":
        at = axes.transAxes.inverted().transform(axes.transData.transform((rule.at, axes.get_ylim()[0])))[0]
        side, ha = (-3, "right") if at > 0.5 else (3, "left")
        place = {"xy": (rule.at, 0.5), "xycoords": ("data", "axes fraction"), "xytext": (side, 0), "ha": ha}
        place |= {"va": "center", "rotation": 90}
    else:
        place = {"xy": (1, rule.at), "xycoords": ("axes fraction", "data"), "xytext": (-4, 4), "ha": "right"}
    place["bbox"] = {"facecolor": _COLOURS["card"], "edgecolor": "none", "alpha": 0.85, "pad": 1}
    words = visible(rule.label)
    axes.annotate(words, textcoords="offset points", fontsize=8.5, color=_COLOURS["ink"], **place)


def _name_axes(result: Figure, axes: Axes, plot: Plot) -> None:
    words: Record = {"fontsize": 9.5, "color": _COLOURS["ink"]}
    label = textwrap.fill(visible(plot.x_label), _NAME_LETTERS)
    names = [drawn.label for drawn in plot.drawn if not isinstance(drawn, Rule) and drawn.label]
    outside = len(names) > 2  # they would cover what is drawn
    # Places leave little room below the axis itself.
    (result.supxlabel if plot.y_ticks and not outside else axes.set_xlabel)(label, **words)
    axes.set_ylabel(visible(plot.y_label), **words)
    axes.tick_params(which="both", labelsize=8.5, color=_COLOURS["faint"], labelcolor=_COLOURS["ink"])
    if names:
        columns = 2 if 2 * max(map(len, names)) <= _LEGEND_LETTERS else 1
        place: Record = {"loc": "outside lower center", "ncols": columns} if outside else {}
        owner: Any = result if outside else axes
        legend = owner.legend(fontsize=8.5, framealpha=0.85, labelcolor=_COLOURS["ink"], **place)
        legend.get_frame().set(facecolor=_COLOURS["card"], edgecolor="none")


def _in_plain_numbers(axes: Axes) -> None:
    """0.1 for 10⁻¹; ratios of less than three decades, which would have one or two ticks, get more."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    low, high = axes.get_xlim()
    if low > 0 and high / low < 1e5:
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    if low > 0 and high / low < 1e3:
        # Steps that divide 1, where equality lies.
        near = high / low <= 5
        axes.xaxis.set_major_locator(
            MaxNLocator(6, steps=[1, 2, 5, 10]) if near else LogLocator(subs=(1, 2, 5))
        )
        axes.xaxis.set_minor_formatter(NullFormatter())


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
