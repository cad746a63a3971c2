"""Charts drawn by matplotlib through its object interface: no pyplot, no global figure, no display."""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from private_mcmc.records import Record, visible
from private_mcmc.report.blocks import Drawn, Interval, Line, Plot, Rule

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
_SERIES = ("c0", "c1", "c2", "c3", "c4")

# Colours by the names of CSS variables: ink, faint lines, ground, each series, and what is good or bad.
Palette: TypeAlias = Mapping[str, str]
LIGHT: Palette = {
    **{"ink": "#2b3036", "faint": "#c9ced6", "card": "#ffffff", "good": "#1a7f4b", "bad": "#b3261e"},
    **dict(zip(_SERIES, ("#0067a5", "#c8500a", "#00805c", "#9a4a86", "#7a6a00"), strict=True)),
}
# Colours nothing else uses: each is replaced by its CSS variable, so that one SVG follows light and dark.
_SENTINELS: Palette = {name: f"#0102{code:02x}" for code, name in enumerate(LIGHT, start=3)}


def tall(plot: Plot, size: tuple[float, float]) -> tuple[float, float]:
    """``size``, higher where named places would not have room."""
    lines = sum(name.count("\n") + 1 for _, name in _places(plot, size))
    return size[0], max(size[1], _AROUND + _PLACE * lines)


def _places(plot: Plot, size: tuple[float, float]) -> list[tuple[float, str]]:
    """Places on the vertical axis, long names on several lines."""
    room = int(_TICK_LETTERS * size[0])
    return [(at, textwrap.fill(visible(name).replace("[", " ["), room)) for at, name in plot.y_ticks]


def figure(plot: Plot, palette: Palette = LIGHT, size: tuple[float, float] = (6.4, 3.7)) -> Figure:
    """A matplotlib figure of ``plot``; ``size`` in inches, at least."""
    import matplotlib
    from matplotlib.figure import Figure

    size = tall(plot, size)
    # Between two dollars matplotlib would read formulas.
    with matplotlib.rc_context({"text.parse_math": False}):
        result = Figure(figsize=size, layout="constrained", facecolor="none")
        axes = result.add_subplot(facecolor="none")
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set_color(palette["faint"])
        axes.grid(visible=True, color=palette["faint"], linewidth=0.5, alpha=0.7)
        axes.set_axisbelow(True)
        axes.set(xscale="log" if plot.x_log else "linear", yscale="log" if plot.y_log else "linear")
        for drawn in plot.drawn:
            _draw(axes, drawn, palette)
        if plot.x_log:
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
        figure(plot, _SENTINELS, size).savefig(
            buffer, format="svg", transparent=True, metadata={"Date": None}
        )
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"font: ([^;\"]*?)'[^;\"]*\"", r'font: \1inherit"', text)
    for name, sentinel in _SENTINELS.items():
        text = text.replace(sentinel, f"var(--{name})")
    return text


def _draw(axes: Axes, drawn: Drawn, palette: Palette) -> None:
    if isinstance(drawn, Rule):
        rule = axes.axvline if drawn.axis == "x" else axes.axhline
        rule(drawn.at, color=palette["ink"], linewidth=1, linestyle=_DASHES["dashed"])
        return
    given: Record = {
        "color": palette[_SERIES[drawn.color % len(_SERIES)]],
        "label": visible(drawn.label) or None,
    }
    if isinstance(drawn, Line):
        given |= {"linestyle": _DASHES[drawn.style], "marker": "o" if drawn.marker else None}
        axes.plot(drawn.x, drawn.y, linewidth=1.8, markersize=2.6 if drawn.style == "none" else 4.5, **given)
    elif isinstance(drawn, Interval):
        axes.hlines(drawn.y, drawn.low, drawn.high, linewidth=2.2, **given)
        axes.plot(drawn.middle, drawn.y, "o", color=given["color"], markersize=4.5)


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
    place["bbox"] = {"facecolor": palette["card"], "edgecolor": "none", "alpha": 0.85, "pad": 1}
    words = visible(rule.label)
    axes.annotate(words, textcoords="offset points", fontsize=8.5, color=palette["ink"], **place)


def _finish_axes(result: Figure, axes: Axes, plot: Plot, palette: Palette, size: tuple[float, float]) -> None:
    if plot.y_ticks:
        axes.set_yticks([at for at, _ in plot.y_ticks], [name for _, name in _places(plot, size)])
        axes.minorticks_off()
    axes.set_xlim(plot.x_range)
    axes.set_ylim(plot.y_range)
    words: Record = {"fontsize": 9.5, "color": palette["ink"]}
    label = textwrap.fill(visible(plot.x_label), int(_NAME_LETTERS * size[0]))
    names = [drawn.label for drawn in plot.drawn if not isinstance(drawn, Rule) and drawn.label]
    outside = len(names) > 2  # they would cover what is drawn
    # Places leave little room below the axis itself.
    (result.supxlabel if plot.y_ticks and not outside else axes.set_xlabel)(label, **words)
    axes.set_ylabel(visible(plot.y_label), **words)
    axes.tick_params(which="both", labelsize=8.5, color=palette["faint"], labelcolor=palette["ink"])
    if names:
        owner: Axes | Figure | SubFigure = axes
        place: Record = {}
        if outside:
            columns = 2 if 2 * max(map(len, names)) <= _LEGEND_LETTERS else 1
            owner, place = axes.figure, {"loc": "outside lower center", "ncols": columns}
        legend = owner.legend(fontsize=8.5, framealpha=0.85, labelcolor=palette["ink"], **place)
        legend.get_frame().set(facecolor=palette["card"], edgecolor="none")


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
