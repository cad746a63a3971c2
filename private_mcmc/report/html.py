"""A report as one self-contained HTML page: its style inside, nothing fetched, light and dark."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from typing import Any

from private_mcmc.records import visible
from private_mcmc.report.blocks import Block, Plot, Table, cell, right_aligned
from private_mcmc.report.drawing import svg

_HERE = resources.files("private_mcmc.report")
STYLE = "\n" + _HERE.joinpath("report.css").read_text("utf-8")
# A chart that has no more places is small on paper.
_SHORT = 12


def page(title: str, blocks: tuple[Block, ...]) -> str:
    """A complete HTML document."""
    return str(_template().page(title, blocks))


def fragment(title: str, blocks: tuple[Block, ...]) -> str:
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
