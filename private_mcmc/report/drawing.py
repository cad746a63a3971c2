"""Charts drawn by matplotlib through its object interface: no pyplot, no global figure, no display."""

from __future__ import annotations

import io
import re
import textwrap
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from private_mcmc.files import write_whole
from private_mcmc.records import Record, visible
from private_mcmc.report.blocks import Band, Interval, Line, Mark, Plot, Rule

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

_DASHES = {"solid": "-", "dashed": (0, (5, 2.5)), "dotted": (0, (1.2, 1.8)), "none": "none"}

# That stand side by side below a narrow chart, beside two handles.
_LEGEND_LETTERS = 46
# That an axis's name and the names of its places may have on an inch of a chart.
_NAME_LETTERS, _TICK_LETTERS = 10, 5
# Inches of a chart that a named place takes, and what stands around them.
_PLACE, _AROUND = 0.24, 1.0
# From round to less round: as many as an axis has room for, 1 among them.
_RATIOS = tuple(
    tuple(digit * 10.0**power for power in range(-6, 7) for digit in digits)
    for digits in ((1, 2, 5), (1, 2, 3, 5), (1, 1.5, 2, 3, 5, 7))
)


@dataclass(frozen=True)
class Palette:
    """Colours of a chart: its ink, its faint lines, its ground, and one colour for each series."""

    ink: str
    faint: str
    ground: str
    series: tuple[str, ...]
    good: str
    bad: str


LIGHT = Palette(
    ink="#2b3036",
    faint="#c9ced6",
    ground="#ffffff",
    series=("#0067a5", "#c8500a", "#00805c", "#9a4a86", "#7a6a00"),
    good="#1a7f4b",
    bad="#b3261e",
)

# Colours nothing else uses: each is replaced by a CSS variable, so that one SVG follows light and dark.
_VARIABLES = ("ink", "faint", "card", "c0", "c1", "c2", "c3", "c4", "good", "bad")
_SENTINELS = {f"#0102{code:02x}": f"var(--{name})" for code, name in enumerate(_VARIABLES, start=3)}
_INK, _FAINT, _CARD, *_SERIES, _GOOD, _BAD = _SENTINELS
_CSS = Palette(_INK, _FAINT, _CARD, tuple(_SERIES), _GOOD, _BAD)


def _worded(plot: Plot) -> Plot:
    """``plot`` with words as they are: between two dollars matplotlib reads formulas."""
    drawn = []
    for one in plot.drawn:
        words = {name: _dollars(getattr(one, name)) for name in ("label", "text") if hasattr(one, name)}
        drawn.append(replace(one, **words))  # type: ignore[arg-type]
    return replace(
        plot,
        title=_dollars(plot.title),
        x_label=_dollars(plot.x_label),
        y_label=_dollars(plot.y_label),
        drawn=tuple(drawn),
        x_ticks=tuple((at, _dollars(name)) for at, name in plot.x_ticks),
        y_ticks=tuple((at, _dollars(name)) for at, name in plot.y_ticks),
    )


def _dollars(text: str) -> str:
    return visible(text).replace("$", r"\$")


def tall(plot: Plot, size: tuple[float, float]) -> tuple[float, float]:
    """``size``, higher where named places would not have room."""
    lines = sum(name.count("\n") + 1 for _, name in _places(plot, size))
    return size[0], max(size[1], _AROUND + _PLACE * lines)


def _places(plot: Plot, size: tuple[float, float]) -> tuple[tuple[float, str], ...]:
    """Places on the vertical axis, long names on several lines."""
    room = int(_TICK_LETTERS * size[0])
    return tuple((at, textwrap.fill(name.replace("[", " ["), room)) for at, name in plot.y_ticks)


def figure(plot: Plot, palette: Palette = LIGHT, size: tuple[float, float] = (6.4, 3.7)) -> Figure:
    """A matplotlib figure of ``plot``; ``size`` in inches, at least."""
    from matplotlib.figure import Figure

    size, plot = tall(plot, size), _worded(plot)
    result = Figure(figsize=size, layout="constrained", facecolor="none")
    axes = result.add_subplot(facecolor="none")
    _prepare_axes(axes, plot, palette)
    for drawn in plot.drawn:
        _draw(axes, drawn, palette)
    if plot.x_log and not plot.x_ticks:
        _in_plain_numbers(axes)
    _finish_axes(result, axes, plot, palette, size)
    for drawn in plot.drawn:
        if isinstance(drawn, Rule):
            _name_rule(axes, drawn, palette)
    return result


def svg(plot: Plot, size: tuple[float, float] = (6.4, 3.7)) -> str:
    """An inline ``<svg>`` of ``plot`` whose colours are CSS variables and whose text is text."""
    import matplotlib

    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": f"{plot.title} {size}"}):
        figure(plot, _CSS, size).savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"font: ([^;\"]*?)'[^;\"]*\"", r'font: \1inherit"', text)
    for sentinel, variable in _SENTINELS.items():
        text = text.replace(sentinel, variable)
    return text


def png(plot: Plot, path: str | Path | None = None, below: str = "") -> bytes:
    """The bytes of a PNG of ``plot`` on white, also written to ``path`` where given (or ``OutputError``).

    ``below`` stands below the title: what a page would say beside the chart.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    drawing = figure(plot)
    drawing.suptitle(
        _dollars(textwrap.fill(plot.title, 70)),
        fontsize=11,
        color=LIGHT.ink,
        x=0.02,
        ha="left",
        weight="bold",
    )
    if below:
        letters = 66 if plot.y_ticks else 92  # beside names of places there is less room
        words = _dollars(textwrap.fill(below, letters))
        drawing.axes[0].set_title(words, fontsize=8, color=LIGHT.ink, loc="left")
    FigureCanvasAgg(drawing)
    buffer = io.BytesIO()
    drawing.savefig(buffer, format="png", dpi=150, facecolor=LIGHT.ground)
    content = buffer.getvalue()
    if path is not None:
        write_whole(path, content)
    return content


def _prepare_axes(axes: Axes, plot: Plot, palette: Palette) -> None:
    if plot.x_log:
        axes.set_xscale("log")
    if plot.y_log:
        axes.set_yscale("log")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(palette.faint)
    axes.grid(visible=True, color=palette.faint, linewidth=0.5, alpha=0.7)
    axes.set_axisbelow(True)


def _draw(axes: Axes, drawn: Line | Band | Interval | Rule | Mark, palette: Palette) -> None:
    if isinstance(drawn, Line):
        color = palette.series[drawn.color % len(palette.series)]
        marker = "o" if drawn.marker else None
        axes.plot(
            drawn.x, drawn.y, color=color, label=drawn.label or None, linestyle=_DASHES[drawn.style],
            linewidth=1.8, marker=marker, markersize=2.6 if drawn.style == "none" else 4.5,
        )  # fmt: skip
        if drawn.fill:
            axes.fill_between(drawn.x, drawn.y, 0, color=color, alpha=0.14, linewidth=0)
    elif isinstance(drawn, Band):
        color = palette.series[drawn.color % len(palette.series)]
        axes.fill_between(
            drawn.x, drawn.low, drawn.high, color=color, alpha=0.2, linewidth=0, label=drawn.label or None
        )
    elif isinstance(drawn, Interval):
        color = palette.series[drawn.color % len(palette.series)]
        axes.hlines(drawn.y, drawn.low, drawn.high, color=color, linewidth=2.2, label=drawn.label)
        axes.plot(drawn.middle, drawn.y, "o", color=color, markersize=4.5)
    elif isinstance(drawn, Rule):
        rule = axes.axvline if drawn.axis == "x" else axes.axhline
        rule(drawn.at, color=palette.ink, linewidth=1, linestyle=_DASHES["dashed"])
    else:
        color = {"good": palette.good, "bad": palette.bad}.get(drawn.tone, palette.ink)
        axes.plot([drawn.x], [drawn.y], "o", color=color, markersize=6)
        axes.annotate(
            drawn.text,
            (drawn.x, drawn.y),
            textcoords="offset points",
            xytext=(-7 if drawn.left else 7, 6),
            ha="right" if drawn.left else "left",
            fontsize=8.5,
            color=color,
        )


def _name_rule(axes: Axes, rule: Rule, palette: Palette) -> None:
    """Along a rule, on the side that has room; above a level, at its right end."""
    place: Record
    if rule.axis == "x":
        at = axes.transAxes.inverted().transform(axes.transData.transform((rule.at, axes.get_ylim()[0])))[0]
        side, ha = (-3, "right") if at > 0.5 else (3, "left")
        place = {"xy": (rule.at, 0.5), "xycoords": ("data", "axes fraction"), "xytext": (side, 0), "ha": ha}
        place |= {"va": "center", "rotation": 90}
    else:
        place = {"xy": (1, rule.at), "xycoords": ("axes fraction", "data"), "xytext": (-4, 4), "ha": "right"}
    place["bbox"] = {"facecolor": palette.ground, "edgecolor": "none", "alpha": 0.85, "pad": 1}
    axes.annotate(rule.label, textcoords="offset points", fontsize=8.5, color=palette.ink, **place)


def _finish_axes(result: Figure, axes: Axes, plot: Plot, palette: Palette, size: tuple[float, float]) -> None:
    if plot.x_ticks:
        axes.set_xticks([at for at, _ in plot.x_ticks], [name for _, name in plot.x_ticks])
        axes.minorticks_off()
    if plot.y_ticks:
        axes.set_yticks([at for at, _ in plot.y_ticks], [name for _, name in _places(plot, size)])
        axes.minorticks_off()
    if plot.x_range is not None:
        axes.set_xlim(*plot.x_range)
    if plot.y_range is not None:
        axes.set_ylim(*plot.y_range)
    room = int(_NAME_LETTERS * size[0])
    label = textwrap.fill(plot.x_label, room)
    names = [drawn.label for drawn in plot.drawn if not isinstance(drawn, Rule | Mark) and drawn.label]
    outside = len(names) > 2  # they would cover what is drawn
    if plot.y_ticks and not outside:  # which leave little room below the axis itself
        result.supxlabel(label, fontsize=9.5, color=palette.ink)
    else:
        axes.set_xlabel(label, fontsize=9.5, color=palette.ink)
    axes.set_ylabel(plot.y_label, fontsize=9.5, color=palette.ink)
    axes.tick_params(which="both", labelsize=8.5, color=palette.faint, labelcolor=palette.ink)
    if names:
        owner: Axes | Figure | SubFigure = axes
        place: Record = {}
        if outside:
            owner, place = axes.figure, {"loc": "outside lower center", "ncols": _columns(names)}
        legend = owner.legend(fontsize=8.5, frameon=True, framealpha=0.85, labelcolor=palette.ink, **place)
        legend.get_frame().set(facecolor=palette.ground, edgecolor="none")


def _columns(names: list[str]) -> int:
    """Two columns of names where a narrow chart has room for both."""
    half = -(-len(names) // 2)
    return 2 if max(map(len, names[:half])) + max(map(len, names[half:])) <= _LEGEND_LETTERS else 1


def _in_plain_numbers(axes: Axes) -> None:
    """0.1 for 10⁻¹; ratios of less than three decades, which would have one or two ticks, get more."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullFormatter

    low, high = axes.get_xlim()
    if low > 0 and high / low < 1e5:
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    if low > 0 and high / low < 1e3:
        inside = [[ratio for ratio in ratios if low <= ratio <= high] for ratios in _RATIOS]
        enough = next((found for found in inside[int(high / low <= 20) :] if len(found) >= 3), None)
        # Steps that divide 1, where equality lies.
        evenly = MaxNLocator(4, steps=[1, 2, 5, 10])
        axes.xaxis.set_major_locator(evenly if enough is None else FixedLocator(enough))
        axes.xaxis.set_minor_formatter(NullFormatter())
