"""A report as one self-contained HTML page: its style inside, nothing fetched, light and dark."""

from __future__ import annotations

import re
from html import escape

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

STYLE = """
.pm{--ink:#22272e;--soft:#59636f;--faint:#d5d9e0;--ground:#f5f6f8;--card:#ffffff;--c0:#0067a5;--c1:#c8500a;
--c2:#00805c;--c3:#9a4a86;--c4:#7a6a00;--good:#166b3f;--bad:#a3231b;--unsure:#7d5700;--good-bg:#e7f4ec;
--bad-bg:#fbeae8;--unsure-bg:#fbf3df;--plain-bg:#eef1f5;--code:#eef1f5;color:var(--ink);
font:15px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;max-width:50rem;
margin:0 auto;padding:2rem 1.25rem 3rem;text-align:left}
@media screen and (prefers-color-scheme:dark){
.pm{--ink:#e3e7ec;--soft:#a3adb9;--faint:#3a424d;--ground:#14181d;
--card:#1b2027;--c0:#58b0e8;--c1:#f2935c;--c2:#4cc59b;--c3:#d693c4;--c4:#d1c04d;--good:#7fd6a5;
--bad:#ff9d94;--unsure:#eac36b;--good-bg:#15301f;--bad-bg:#3a1a18;--unsure-bg:#332811;--plain-bg:#232a33;
--code:#262d36}}
.pm h1{font-size:1.55rem;line-height:1.25;margin:0 0 1.1rem;letter-spacing:-.01em}
.pm h2{font-size:1.12rem;margin:2.2rem 0 .6rem;padding-top:1.1rem;border-top:1px solid var(--faint)}
.pm h3{font-size:1rem;margin:1.5rem 0 .4rem}
.pm p{margin:.55rem 0;max-width:44rem}
.pm code{font:.88em ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;background:var(--code);
padding:.08em .32em;border-radius:4px}
.pm .verdict{border-left:5px solid;border-radius:6px;padding:.95rem 1.15rem;margin:0 0 1.2rem}
.pm .verdict .word{display:block;font-weight:700;font-size:.8rem;letter-spacing:.07em;
text-transform:uppercase}
.pm .verdict .line{display:block;font-size:1.14rem;font-weight:600;line-height:1.4;color:var(--ink);
margin-top:.15rem}
.pm .verdict ul{margin:.6rem 0 0;padding-left:1.15rem;color:var(--ink)}
.pm .verdict li{margin:.2rem 0}
.pm .good{background:var(--good-bg);border-color:var(--good);color:var(--good)}
.pm .bad{background:var(--bad-bg);border-color:var(--bad);color:var(--bad)}
.pm .unsure{background:var(--unsure-bg);border-color:var(--unsure);color:var(--unsure)}
.pm .plain{background:var(--plain-bg);border-color:var(--soft)}
.pm .note{border-left:3px solid;border-radius:4px;padding:.55rem .9rem;margin:.7rem 0;max-width:44rem}
.pm .note span{color:var(--ink)}
.pm .wide{overflow-x:auto;margin:.7rem 0}
.pm table{border-collapse:collapse;font-size:.92rem;background:none;width:100%}
.pm caption{text-align:left;font-weight:600;padding:.3rem 0;color:var(--ink)}
.pm th,.pm td{padding:.38rem .7rem .38rem 0;text-align:left;vertical-align:top;
border-bottom:1px solid var(--faint);background:none;color:var(--ink)}
.pm thead th{color:var(--soft);font-weight:600;font-size:.84rem;border-bottom:1.5px solid var(--soft)}
.pm .facts{width:auto;min-width:60%}
.pm .facts th{font-weight:400;color:var(--soft);padding-right:1.6rem;white-space:nowrap}
.pm td.num,.pm th.num{text-align:right;padding-right:1.6rem;font-variant-numeric:tabular-nums;
white-space:nowrap}
.pm figure{margin:1rem 0;padding:.8rem .9rem .6rem;background:var(--card);border:1px solid var(--faint);
border-radius:8px}
.pm figure svg{width:100%;height:auto;display:block}
.pm .narrow{display:none}
.pm figcaption{font-weight:600;font-size:.95rem;margin-bottom:.45rem}
.pm figure small{display:block;color:var(--soft);font-size:.84rem;line-height:1.45;margin-top:.4rem}
.pm .grid{display:grid;grid-template-columns:repeat(auto-fit,minmax(15rem,1fr));gap:.8rem;margin:1rem 0}
.pm .grid figure{margin:0}
.pm pre{font:.84rem/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;background:var(--code);
padding:.6rem .8rem;border-radius:6px;overflow-x:auto;margin:.6rem 0}
.pm code{overflow-wrap:anywhere}
.pm details{border:1px solid var(--faint);border-radius:8px;padding:.1rem .9rem;margin:.6rem 0;
background:var(--card)}
.pm summary{cursor:pointer;padding:.5rem 0;font-weight:600}
.pm .confirm{list-style:none;padding:0;margin:.6rem 0;max-width:44rem}
.pm .confirm li{padding:.15rem 0 .15rem 1.7rem;position:relative}
.pm .confirm li:before{content:"";position:absolute;left:.1rem;top:.42rem;width:.85rem;height:.85rem;
border:1.5px solid var(--soft);border-radius:3px}
.pm .sign{display:grid;grid-template-columns:repeat(auto-fit,minmax(12rem,1fr));gap:2.6rem 1.5rem;
margin:2.6rem 0 1rem}
.pm .sign div{border-top:1.5px solid var(--soft);padding-top:.25rem;font-size:.84rem;color:var(--soft)}
@media (max-width:34rem){.pm{padding:1.1rem .9rem 2rem}.pm .facts{width:100%}
.pm .facts th,.pm .facts td{display:block;border:0;padding:0;white-space:normal}
.pm .facts td{border-bottom:1px solid var(--faint);padding-bottom:.35rem;margin-bottom:.35rem}
.pm .broad{display:none}.pm .narrow{display:block}
.pm .many,.pm .many tbody,.pm .many tr{display:block}.pm .many thead{display:none}
.pm .many caption{display:block}
.pm .many tr{border-bottom:1px solid var(--faint);padding:.45rem 0}
.pm .many td,.pm .many td.num{display:flex;gap:1rem;justify-content:space-between;text-align:right;border:0;
padding:.06rem 0;white-space:normal}
.pm .many td:first-child{font-weight:600;text-align:left}.pm .many td:first-child:before{content:none}
.pm .many td:before{content:attr(data-label);color:var(--soft);text-align:left}}
@page{size:A4;margin:15mm 14mm}
@media print{.pm{--ink:#000;--soft:#444;--faint:#bbb;--ground:#fff;--card:#fff;--c0:#0067a5;--c1:#c8500a;
--c2:#00805c;--c3:#9a4a86;--c4:#7a6a00;--good:#166b3f;--bad:#a3231b;--unsure:#7d5700;--good-bg:#e7f4ec;
--bad-bg:#fbeae8;--unsure-bg:#fbf3df;--plain-bg:#eef1f5;--code:#eef1f5;max-width:none;padding:0;
font-size:12px;line-height:1.4;print-color-adjust:exact;-webkit-print-color-adjust:exact}
.pm details{display:none}.pm th,.pm td{padding-top:.25rem;padding-bottom:.25rem}
.pm p,.pm .note,.pm .confirm{max-width:none}
.pm h2{margin-top:1.1rem;padding-top:.5rem;break-after:avoid}
.pm figure,.pm tr,.pm .verdict,.pm .note,.pm .form{break-inside:avoid}
.pm figure svg{max-height:6.6cm}.pm figure svg.tall{max-height:23cm}.pm pre{white-space:pre-wrap}}
"""

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
    head = "".join(
        f'<th scope="col"{c}>{_inline(name)}</th>' for name, c in zip(block.columns, classes, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(
            f'<td{c} data-label="{escape(name)}">{_inline(cell(v))}</td>'
            for v, c, name in zip(row, classes, block.columns, strict=True)
        )
        + "</tr>"
        for row in block.rows
    )
    # On a phone each row of a table with many columns is a list.
    many = ' class="many"' if len(block.columns) > _FEW_COLUMNS else ""
    inner = f"{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    return f'<div class="wide"><table{many}>{inner}</table></div>'


def _figure(plot: Plot, size: tuple[float, float], narrow: tuple[float, float] | None = None) -> str:
    """A chart with its words; drawn again, ``narrow``, for a phone, where letters would shrink with it."""
    drawing = _drawn(plot, size, "broad" if narrow else "")
    drawing += _drawn(plot, narrow, "narrow") if narrow else ""
    below = f"<small>{_inline(plot.description)}</small>" if plot.description else ""
    return f"<figure><figcaption>{_inline(plot.title)}</figcaption>{drawing}{below}</figure>"


def _drawn(plot: Plot, size: tuple[float, float], name: str) -> str:
    words = escape(plot.description or plot.title)
    name += " tall" * (len(plot.y_ticks) > _SHORT)
    return svg(plot, size).replace("<svg", f'<svg class="{name}" role="img" aria-label="{words}"', 1)
