"""A report as one self-contained HTML page: its style inside, nothing fetched, light and dark."""

from __future__ import annotations

import re
from html import escape

from private_mcmc.report.blocks import Block, Facts, Heading, Note, Plot, Plots, Table, Text, Verdict
from private_mcmc.report.drawing import svg
from private_mcmc.report.numbers import cell, right_aligned
from private_mcmc.report.style import PAGE, STYLE


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
        case Heading(text, level):
            tag = f"h{min(max(level, 2), 4)}"
            return f"<{tag}>{_inline(text)}</{tag}>"
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
            return _figure(block, (6.4, 3.7))
        case Plots(plots):
            return '<div class="grid">' + "".join(_figure(plot, (3.6, 2.7)) for plot in plots) + "</div>"


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


def _table(block: Table) -> str:
    numeric = [right_aligned(block, index) for index in range(len(block.columns))]
    classes = [' class="num"' if right else "" for right in numeric]
    caption = f"<caption>{_inline(block.title)}</caption>" if block.title else ""
    head = "".join(
        f'<th scope="col"{c}>{_inline(name)}</th>' for name, c in zip(block.columns, classes, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(f"<td{c}>{_inline(cell(v))}</td>" for v, c in zip(row, classes, strict=True))
        + "</tr>"
        for row in block.rows
    )
    return (
        f'<div class="wide"><table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def _figure(plot: Plot, size: tuple[float, float]) -> str:
    words = escape(plot.description or plot.title)
    drawing = svg(plot, size).replace("<svg", f'<svg role="img" aria-label="{words}"', 1)
    below = f"<small>{_inline(plot.description)}</small>" if plot.description else ""
    return f"<figure><figcaption>{_inline(plot.title)}</figcaption>{drawing}{below}</figure>"
