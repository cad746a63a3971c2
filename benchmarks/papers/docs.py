"""``README.md`` and ``BEYOND.md`` beside this file, written from the pages' records."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from private_mcmc.report import number

_ABBREVIATIONS = (
    ("DP", "differential privacy; `(ε, δ)`-DP as in Dwork, Roth 2014"),
    ("GDP", "Gaussian differential privacy: as hard to tell apart as `N(0, 1)` and `N(m, 1)`"),
    ("Rényi", "Rényi differential privacy, of order α"),
    ("SGD, SGLD", "stochastic gradient descent; stochastic gradient Langevin dynamics"),
    ("ULA", "unadjusted Langevin algorithm"),
    ("KL", "Kullback–Leibler divergence, relative entropy"),
)
_STATUSES = (
    (
        "holds",
        "true, or within one percent on the right side; of trained networks: within three standard errors",
    ),
    ("loose by k×", "true, and k times as far as our exact value or proved bound at these settings"),
    ("false", "contradicted by an exact value or a counter-example, computed in the page"),
    ("not reproduced", "trained networks of ours, whose standard error is given, are elsewhere"),
    ("within noise", "three standard errors of our trained networks reach both the paper's number and 0"),
    ("not proved", "the number may be right, the printed proof is not"),
    ("not run", "needs trained networks; the command is given"),
)
_HEAD = """<!-- Written by `python -m benchmarks.papers docs`: change benchmarks/papers/pages/ instead. -->

"""


def papers_page(records: Iterable[dict[str, Any]]) -> str:
    """The table of claims of all papers."""
    lines = [
        _HEAD + "# The papers, claim by claim",
        "",
        "The library grew out of four papers. Every quantitative claim of theirs is computed here at "
        "settings that "
        "fit a page, beside our number: an exact value, a bound of ours, or a simulation. A status "
        "follows from the "
        "two numbers. It is a statement about a *number at these settings*, not about the worth of a "
        "theorem: a "
        "bound that is loose by 2.8 was first where there was none.",
        "",
        "```bash",
        "python -m benchmarks.papers                        # the list",
        "python -m benchmarks.papers 000 --html 000.html    # a page with plots; --json FILE, --full "
        "for the paper's size",
        "make papers                                        # all of them, into build/papers/",
        "```",
        "",
        "From a checkout: the papers' code is not in the wheel. What goes beyond the papers: "
        "[What we know that the papers do not](BEYOND.md).",
        "",
        *_table(("short", "means"), _ABBREVIATIONS),
        "",
        *_table(("status", "means"), _STATUSES),
    ]
    for record in records:
        lines += ["", f"## {record['paper']}: {record['title']}", "", _made(record), ""]
        lines += _table(
            ("claim", "quantity", "paper", "ours", "status", "why", "code, test"),
            (
                (
                    c["name"],
                    c["what"],
                    _number(c["printed"]),
                    _ours(c),
                    c["words"],
                    c["why"],
                    f"{c['code']}<br>{_test(c)}",
                )
                for c in record["claims"]
            ),
        )
    return "\n".join(lines) + "\n"


def _made(record: dict[str, Any]) -> str:
    """Settings, machine and run time, as on the page itself."""
    settings = "; ".join(f"{name}: {value}" for name, value in record["settings"].items())
    return f"*{settings}. Made in {record['seconds']:.0f} s on {record['machine']}.*"


def beyond_page(record: dict[str, Any]) -> str:
    """What goes beyond, with the status of each proof."""
    lines = [
        _HEAD + "# What we know that the papers do not",
        "",
        "On the papers' own axes: ε (or what is named) of their best bound beside ours, at one "
        "setting each. The "
        "plots are on the page of `python -m benchmarks.papers beyond --html beyond.html`. "
        "Claim by claim: [The papers](README.md).",
        "",
        _made(record),
        "",
        *_table(
            ("what", "in one line", "quantity", "papers", "ours", "proof", "code, test"),
            (
                (
                    c["name"],
                    c["states"],
                    c["what"],
                    _number(c["printed"]),
                    _number(c["ours"]),
                    c["why"],
                    f"{c['code']}<br>{_test(c)}",
                )
                for c in record["claims"]
            ),
        ),
        "",
    ]
    words = [block["text"] for block in record["report"]["blocks"] if block["kind"] == "text"]
    return "\n".join([*lines, "## Open", "", words[-1]]) + "\n"


def _table(columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    lines = ["| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns)]
    return lines + ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]


def _number(value: Any) -> str:
    return "—" if value is None else number(float(value), 4)


def _ours(claim: dict[str, Any]) -> str:
    return "—" if claim["ours"] is None else f"{_number(claim['ours'])}, {claim['by']}"


def _test(claim: dict[str, Any]) -> str:
    return f"`{claim['test']}`"
