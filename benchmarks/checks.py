"""How often is a check or a comparison right after real private fits?

    python benchmarks/checks.py [--only KIND] [--studies 40] [--rows 20000]
                                [--epsilon 1.0] [--share 0.05] [--seed 0]

Each study has people of its own: ``y ~ x + sex`` is fitted with all of the squared budget but ``share``,
which buys a check by region of the same people. *Right*: outcomes are the model's. *Interaction*: the slope
of ``x`` is half a unit larger in two regions of four and smaller in the others, which no term has. Prints
the share of studies in which the check says "misfit" at the level of 5 %, with its standard error.
*Compare*: the slope of ``x`` differs by 0.2 between the sexes. ``y ~ x + sex`` and ``y ~ x * sex`` get half
of the rest each, and are compared. Prints how often the second is ahead, how often the interval holds the
mean difference of 200,000 other people, and the median difference in sds of privacy's noise.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import warnings
from pathlib import Path
from typing import TypeAlias

import numpy as np

import private_mcmc as pmc
from private_mcmc.accounting import gdp
from private_mcmc.data.table import read_table

Table: TypeAlias = dict[str, np.ndarray]

_DELTA = 1e-6


def people(random: np.random.Generator, n: int, kind: str) -> Table:
    """A table of ``x``, ``sex``, ``region`` and ``y``."""
    x = np.clip(random.normal(size=n) - 0.2, -4, 4)
    sex, region = random.integers(0, 2, n), random.choice(4, n, p=[0.4, 0.3, 0.2, 0.1])
    eta = -1.1 + 0.8 * x + 0.5 * sex
    if kind == "interaction":
        eta += np.where(region % 2, 0.5, -0.5) * (x + 0.2)
    if kind == "compare":
        eta += np.where(sex, 0.1, -0.1) * (x + 0.2)
    y = (random.random(n) < 1 / (1 + np.exp(-eta))).astype(int)
    return {"x": x, "sex": np.array(["f", "m"])[sex], "region": np.array(list("nswe"))[region], "y": y}


def schema(folder: Path) -> pmc.Schema:
    """What the columns may be."""
    (folder / "schema.yaml").write_text(
        "fields:\n"
        "- {name: x, type: number, constraints: {minimum: -4, maximum: 4}}\n"
        "- {name: sex, type: string, constraints: {enum: [f, m]}}\n"
        "- {name: region, type: string, constraints: {enum: [n, s, w, e]}}\n"
        "- {name: y, type: integer, constraints: {enum: [0, 1]}}\n"
    )
    return pmc.Schema.load(folder / "schema.yaml")


def fitted(table: Table, declared: pmc.Schema, formula: str, cost: float) -> pmc.Study:
    """A private fit that is ``cost``-GDP."""
    epsilon = gdp.epsilon(cost, _DELTA)
    return pmc.fit(table, declared, formula, epsilon=epsilon, delta=_DELTA, progress_bar=False)


def found(table: Table, declared: pmc.Schema, whole: float, share: float) -> bool:
    """Whether the check of one study's fit finds a misfit."""
    study = fitted(table, declared, "y ~ x + sex", whole * math.sqrt(1 - share))
    price = gdp.epsilon(whole * math.sqrt(share), _DELTA)
    checked = pmc.check(study, table, by=["region"], epsilon=price, delta=_DELTA)
    return bool(checked.analysis.lines(checked.found, 0.9)[0]["p"] <= 0.05)


def compared(
    table: Table, others: Table, declared: pmc.Schema, whole: float, share: float
) -> tuple[float, float, float]:
    """Whether the second of two fits is ahead, whether others' difference is covered, and how large it is."""
    half, price = whole * math.sqrt((1 - share) / 2), gdp.epsilon(whole * math.sqrt(share), _DELTA)
    studies = [fitted(table, declared, formula, half) for formula in ("y ~ x + sex", "y ~ x * sex")]
    query = pmc.compare(*studies, table, epsilon=price, delta=_DELTA)
    asked, (line, noise, _) = query.analysis, query.analysis.lines(query.found, 0.9)
    rows = asked.rows.project(read_table(others, declared, asked.fields))
    ((_, t),) = asked.first.of_people(lambda row: tuple(asked.of_row(row)), rows)
    truth, width = asked.bound * float(np.mean(t)), noise["high"] - noise["low"]
    return line["value"] > 0, line["low"] <= truth <= line["high"], truth / (width / (2 * 1.645))


def share_of(times: list[float]) -> str:
    """A share with its standard error."""
    rate = float(np.mean(times))
    return f"{rate:.3f} ± {math.sqrt(rate * (1 - rate) / len(times)):.3f}"


def main() -> None:
    """Run, and print a line for each kind of people."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=["right", "interaction", "compare"])
    parser.add_argument("--studies", type=int, default=40)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--share", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    random = np.random.default_rng(asked.seed)
    with tempfile.TemporaryDirectory() as folder:
        declared = schema(Path(folder))
    whole = gdp.budget(asked.epsilon, _DELTA)
    for kind in [asked.only] if asked.only else ["right", "interaction", "compare"]:
        tables = (people(random, asked.rows, kind) for _ in range(asked.studies))
        if kind != "compare":
            times = [found(table, declared, whole, asked.share) for table in tables]
            print(f"{kind}: misfit found in {share_of(times)}")
            continue
        others = people(random, 200_000, kind)
        told = [compared(table, others, declared, whole, asked.share) for table in tables]
        ahead, covered, sizes = (list(column) for column in zip(*told, strict=True))
        print(f"compare: the second ahead in {share_of(ahead)}, covered in {share_of(covered)}", end=", ")
        print(f"a median difference of {np.median(sizes):.1f} noise sds")


if __name__ == "__main__":
    main()
