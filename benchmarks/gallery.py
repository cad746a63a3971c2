"""The gallery: every notebook of ``examples/gallery`` executed, and the page made of what came out.

    python -m benchmarks.gallery                 # all notebooks (some minutes), then docs/gallery.md
    python -m benchmarks.gallery logistic linear # these anew
    python -m benchmarks.gallery --page          # the page alone, from the results of earlier runs

A row of results is the verdict of preflight, the plan's expected error, the error of the private posterior
means against NUTS on the same rows in posterior sds, and seconds. Exit code 1 where one is over its limit.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import re
import sys
import textwrap
import time
import warnings
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
from numpyro.diagnostics import effective_sample_size

ROOT = Path(__file__).parents[1]
NOTEBOOKS = ROOT / "examples/gallery"
PAGE = ROOT / "docs/gallery.md"
RESULTS = ROOT / "docs/gallery/results.json"

ORDER = (
    "logistic",
    "linear",
    "poisson",
    "negative_binomial",
    "softmax",
    "ordinal",
    "groups",
    "random_intercepts",
    "item_response",
    "survival",
    "ab_test",
    "bounded_mean",
    "mixture",
    "gaussian_process",
    "network",
)
_PARAGRAPH = textwrap.TextWrapper(width=118, break_on_hyphens=False)
# Of the error of the means: of what the plan said beforehand and of what both posteriors' draws add, which a
# correct one passes by chance once in 10^4 runs of one coefficient, and less often with more.
MOST_ERROR = 4.0
# Over that limit, and said on the page: a plan predicts the error of one mode, of which a network has many.
FAR = {"network"}
# Of preflight and plan on an idle machine of two cores; the refusal of a full Gaussian process is quick.
MOST_SECONDS = {"Preflight": 30.0, "Plan": 300.0, "The full process is refused": 30.0}


def cells(name: str) -> list[tuple[str, str]]:
    """Title and source of every cell of a notebook in jupytext's percent format."""
    text = (NOTEBOOKS / f"{name}.py").read_text(encoding="utf-8")
    parts = re.split(r"^# %% ", text, flags=re.MULTILINE)[1:]
    return [(part.split("\n", 1)[0], part.split("\n", 1)[1]) for part in parts]


def executed(name: str) -> tuple[dict[str, Any], dict[str, float], str]:
    """The notebook's names, seconds of its parts, and what it printed."""
    names: dict[str, Any] = {"__name__": name}
    seconds, out = {}, io.StringIO()
    # As in Jupyter, where a notebook's folder is searched.
    sys.path.insert(0, str(NOTEBOOKS))
    try:
        for title, source in cells(name)[1:]:
            began = time.perf_counter()
            with contextlib.redirect_stdout(out):
                exec(compile(source, f"{name}: {title}", "exec"), names)
            seconds[title] = round(time.perf_counter() - began, 1)
    finally:
        sys.path.remove(str(NOTEBOOKS))
    return names, seconds | names["study"].seconds, out.getvalue()


def error(private: Any, exact: Any) -> float:
    """Root mean square difference of the means of what both have, in sds of ``exact``."""
    squares = []
    for name in exact.keys() & private.keys():
        ours, theirs = (np.asarray(found[name]) for found in (private, exact))
        squares.append(np.ravel(((ours.mean(0) - theirs.mean(0)) / theirs.std(0)) ** 2))
    return float(np.sqrt(np.mean(np.concatenate(squares))))


def monte_carlo(*both: Any) -> float:
    """What finite draws add to :func:`error`, in its units: of ``N`` independent ones ``N^{-1/2}``."""
    shares = []
    for found in both:
        each = [effective_sample_size(np.asarray(draws)[None]) for draws in found.values()]
        shares.append(np.mean(1 / np.concatenate([np.ravel(one) for one in each])))
    return float(np.sqrt(np.sum(shares)))


def result(name: str) -> dict[str, Any]:
    """One row of the page; its picture is written beside the results."""
    names, seconds, _ = executed(name)
    plt.savefig(RESULTS.parent / f"{name}.png", dpi=70, bbox_inches="tight")
    plt.close("all")
    study = names["study"]
    return {
        "rows": str(study.rows),
        "n": study.n,
        "epsilon": study.target.epsilon,
        "delta": study.target.delta,
        "verdict": study.report.verdict,
        "reason": study.report.reasons[0],
        "plan": [one.stage.name for one in study.mcmc.history],
        "expected": study.plan.prediction.rms,
        "error": error(*study.both),
        "monte_carlo": monte_carlo(*study.both),
        "draws": next(iter(study.mcmc.get_samples(group_by_chain=True).values())).shape[1],
        "seconds": seconds,
    }


def over(found: dict[str, Any]) -> list[str]:
    """The limits that a row of results breaks."""
    # What was kept before that was taken down has none.
    most = MOST_ERROR * math.hypot(found["expected"], found.get("monte_carlo", 0.0))
    broken = [f"error {found['error']:.2g} > {most:.2g}"] if not found["error"] <= most else []
    for title, most in MOST_SECONDS.items():
        if (spent := found["seconds"].get(title, 0.0)) > most:
            broken.append(f"{title} {spent:.0f} s > {most:.0f} s")
    return broken


def heading(name: str) -> tuple[str, str]:
    """The title of a notebook and the paragraph below it."""
    lines = [line.removeprefix("# ") for line in cells(name)[0][1].strip().splitlines()]
    return lines[0].removeprefix("# "), "\n".join(lines[1:])


def page(results: dict[str, dict[str, Any]]) -> str:
    """The page of all results."""
    first = next(iter(results.values()))
    lines = [
        "# Gallery",
        "",
        _PARAGRAPH.fill(
            "Fifteen models to start from, each a notebook in `examples/gallery/` (`jupytext --to ipynb` "
            "converts it): rows, verdict, plan, run, private posterior beside the one without privacy, at "
            f"ε = {first['epsilon']:g} and δ = {first['delta']:g} for one row (or person) replaced, on "
            "synthetic data. `python -m benchmarks.gallery` executes them and writes this page."
        ),
        "",
        "| model | rows | posterior itself | expected error | error | preflight, plan, run (s) |",
        "|---|---|---|---|---|---|",
    ]
    for name, found in results.items():
        title, seconds = heading(name)[0], found["seconds"]
        spent = ", ".join(f"{seconds[part]:.0f}" for part in ("Preflight", "Plan", "Run"))
        lines.append(
            f"| [{title}](#{name.replace('_', '-')}) | {found['n']:,} | {found['verdict']} | "
            f"{found['expected']:.2f} | {found['error']:.2f} | {spent} |"
        )
    lines += [
        "",
        _PARAGRAPH.fill(
            "*Posterior itself* is preflight's verdict at that target; every run is private by its own noise "
            '(`guarantee="run"`). *Expected error* is the plan\'s prediction, *error* the root mean square '
            "difference of posterior means, in posterior sds (of predictions for a network). Seconds are of "
            "a busy machine of two cores."
        ),
        "",
        '??? example "What every notebook does: examples/gallery/study.py"',
        "    ```python",
        '    --8<-- "examples/gallery/study.py"',
        "    ```",
    ]
    waiting = [f"`{name}.py`" for name in ORDER if name not in results]
    if waiting:
        lines += [
            "",
            f"Of the {len(ORDER)} notebooks these have not been run to their end, and nothing is claimed of "
            f"what they would show: {', '.join(waiting)}.",
        ]
    for name in results:
        title, text = heading(name)
        lines += [
            "",
            f"## {title} {{ #{name.replace('_', '-')} }}",
            "",
            text,
            "",
            f"![Intervals of {title[0].lower() + title[1:]}, private and not](gallery/{name}.png)",
            "",
            f'??? example "examples/gallery/{name}.py"',
            "    ```python",
            f'    --8<-- "examples/gallery/{name}.py"',
            "    ```",
        ]
    return "\n".join(lines) + "\n"


def earlier() -> dict[str, dict[str, Any]]:
    """The results of earlier runs."""
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}


def main() -> int:
    """Execute what was asked for, keep the results, write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "names", nargs="*", choices=[*ORDER, []], help="of notebooks; all of them if left out"
    )
    parser.add_argument("--page", action="store_true", help="write the page from earlier results")
    asked = parser.parse_args()
    matplotlib.use("Agg")
    warnings.simplefilter("ignore")
    RESULTS.parent.mkdir(exist_ok=True)
    kept = earlier()
    for name in () if asked.page else asked.names or ORDER:
        found = result(name)
        print(name, f"error {found['error']:.2f}", found["seconds"], flush=True)
        # Others may run beside this one.
        kept = {**earlier(), name: found}
        kept = {one: kept[one] for one in ORDER if one in kept}
        RESULTS.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    PAGE.write_text(page(kept), encoding="utf-8")
    broken = {name: limits for name in kept if (limits := over(kept[name])) and name not in FAR}
    print(*(f"over its limit: {name}: {', '.join(limits)}" for name, limits in broken.items()), sep="\n")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
