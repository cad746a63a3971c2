"""How often does a check find a misfit that is there, and one that is not, after a real private fit?

    python benchmarks/checks.py [--studies 40] [--rows 20000] [--epsilon 1.0] [--share 0.05] [--seed 0]

Each study has people of its own: ``y ~ x + sex`` is fitted with all of the squared budget but ``share``,
which buys a check by region of the same people. *Right*: outcomes are the model's. *Interaction*: the slope
of ``x`` is half a unit larger in two regions of four and smaller in the others, which no term has. Prints
the share of studies in which the check says "misfit" at the level of 5 %, with its standard error.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import warnings
from pathlib import Path

import numpy as np

import private_mcmc as pmc
from private_mcmc.accounting import gdp

_DELTA = 1e-6


def people(random: np.random.Generator, n: int, misfit: bool) -> dict[str, np.ndarray]:
    """A table of ``x``, ``sex``, ``region`` and ``y``."""
    x = np.clip(random.normal(size=n) - 0.2, -4, 4)
    sex, region = random.integers(0, 2, n), random.choice(4, n, p=[0.4, 0.3, 0.2, 0.1])
    eta = -1.1 + 0.8 * x + 0.5 * sex
    if misfit:
        eta += np.where(region % 2, 0.5, -0.5) * (x + 0.2)
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


def found(table: dict[str, np.ndarray], declared: pmc.Schema, epsilon: float, share: float) -> bool:
    """Whether the check of one study's fit finds a misfit."""
    whole = gdp.budget(epsilon, _DELTA)
    rest = gdp.epsilon(whole * math.sqrt(1 - share), _DELTA)
    study = pmc.fit(table, declared, "y ~ x + sex", epsilon=rest, delta=_DELTA, progress_bar=False)
    price = gdp.epsilon(whole * math.sqrt(share), _DELTA)
    checked = pmc.check(study, table, by=["region"], epsilon=price, delta=_DELTA)
    return bool(checked.analysis.lines(checked.found, 0.9)[0]["p"] <= 0.05)


def main() -> None:
    """Run, and print a line for each kind of people."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
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
    for words, misfit in (("right", False), ("interaction", True)):
        times = [
            found(people(random, asked.rows, misfit), declared, asked.epsilon, asked.share)
            for _ in range(asked.studies)
        ]
        rate = float(np.mean(times))
        print(f"{words}: misfit found in {rate:.3f} ± {math.sqrt(rate * (1 - rate) / len(times)):.3f}")


if __name__ == "__main__":
    main()
