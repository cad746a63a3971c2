"""A report as one self-contained HTML page: its style inside, nothing fetched, light and dark."""

from __future__ import annotations

import re
from html import escape
from importlib import resources

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

STYLE = "\n" + resources.files("private_mcmc.report").joinpath("report.css").read_text("utf-8")

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1">
<title>{title}</title><style>html{{color-scheme:light dark}}body{{margin:0;background:#f5f6f8}}
@media (prefers-color-scheme:dark){{body{{background:#14181d}}}}
@media print{{html{{color-scheme:light;font-size:12px}}body{{background:#fff}}}}</style></head>
<body><main>{body}</main></body></html>
"""


# A table that has no more columns stays one on a phone; a chart that has no more places, small on paper.
_FEW_COLUMNS, _SHORT = 3, 12


def page(title: str, blocks: tuple[Block, ...]) -> str:
    """A complete HTML document."""
    return PAGE.format(title=escape(title), body=fragment(title, blocks))


def fragment(title: str, blocks: tuple[Block, ...]) -> str:
    """The report as one element with its style, to stand inside another page (a notebook)."""
    heading = f"<h1>{_inline(title)}</h1>" if title else ""
    inner = "\n".join(_block(block) for block in blocks)
    return f'<div class="pm"><style>{STYLE}</style>{heading}\n{inner}</div>'


def _inline(text: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def _block(block: Block) -> str:
    match block:
        case Heading(text):
            return f"<h2>{_inline(text)}</h2>"
        case Text(text):
            return f"<p>{_inline(text)}</p>"
        case Note(text, tone):
            return f'<div class="note {tone}" role="note"><span>{_inline(text)}</span></div>'
        case Verdict():
            return _verdict(block)
        case Facts():
            return _facts(block)
        case Table():
            return _table(block)
        case Plot():
            return _figure(block, (6.4, 3.7), narrow=(3.7, 3.5))
        case Plots(plots):
            return '<div class="grid">' + "".join(_figure(plot, (3.6, 2.7)) for plot in plots) + "</div>"
        case Code(text):
            return f"<pre>{escape(text)}</pre>"
        case Form():
            return _form(block)
        case Details(summary, blocks):
            inner = "\n".join(_block(each) for each in blocks)
            return f"<details><summary>{_inline(summary)}</summary>{inner}</details>"


def _verdict(block: Verdict) -> str:
    reasons = "".join(f"<li>{_inline(reason)}</li>" for reason in block.reasons)
    below = f"<ul>{reasons}</ul>" if reasons else ""
    return (
        f'<div class="verdict {block.tone}"><span class="word">{_inline(block.word)}</span>'
        f'<span class="line">{_inline(block.line)}</span>{below}</div>'
    )


def _facts(block: Facts) -> str:
    caption = f"<caption>{_inline(block.title)}</caption>" if block.title else ""
    rows = "".join(
        f'<tr><th scope="row">{_inline(name)}</th><td>{_inline(cell(value))}</td></tr>'
        for name, value in block.items
    )
    return f'<div class="wide"><table class="facts">{caption}<tbody>{rows}</tbody></table></div>'


def _form(block: Form) -> str:
    sentences = "".join(f"<li>{_inline(sentence)}</li>" for sentence in block.sentences)
    lines = "".join(f"<div>{_inline(line)}</div>" for line in block.lines)
    return f'<div class="form"><ul class="confirm">{sentences}</ul><div class="sign">{lines}</div></div>'


def _table(block: Table) -> str:
    numeric = [right_aligned(block, index) for index in range(len(block.columns))]
    classes = [' class="num"' if right else "" for right in numeric]
    caption = f"<caption>{_inline(block.title)}</caption>" if block.title else ""
    named = list(zip(block.columns, classes, strict=True))
    head = "".join(f'<th scope="col"{c}>{_inline(name)}</th>' for name, c in named)
    body = ""
    for row in block.rows:
        cells = (
            f'<td{c} data-label="{escape(name)}">{_inline(cell(value))}</td>'
            for value, (name, c) in zip(row, named, strict=True)
        )
        body += f"<tr>{''.join(cells)}</tr>"
    # On a phone each row of a table with many columns is a list.
    many = ' class="many"' if len(block.columns) > _FEW_COLUMNS else ""
    inner = f"{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    return f'<div class="wide"><table{many}>{inner}</table></div>'


def _figure(plot: Plot, size: tuple[float, float], narrow: tuple[float, float] | None = None) -> str:
    """A chart with its words; drawn again, ``narrow``, for a phone, where letters would shrink with it."""
    words, tall = escape(plot.description or plot.title), " tall" * (len(plot.y_ticks) > _SHORT)
    drawing = ""
    for name, each in (("broad", size), ("narrow", narrow)) if narrow else (("", size),):
        tag = f'<svg class="{name}{tall}" role="img" aria-label="{words}"'
        drawing += svg(plot, each).replace("<svg", tag, 1)
    below = f"<small>{_inline(plot.description)}</small>" if plot.description else ""
    return f"<figure><figcaption>{_inline(plot.title)}</figcaption>{drawing}{below}</figure>"
