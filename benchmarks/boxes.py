"""A clip for each coordinate, or one of the norm in the run's metric: which errs less at one price?

    python -m benchmarks.boxes   # two minutes; writes benchmarks/measured/boxes.json and boxes.md

One release of the sum of clipped row gradients at the mode, under Gaussian noise of cost ``m``-GDP: its error
in posterior sds, bias and noise together, root mean square over coordinates. Four ways of clipping:

- the norm, with isotropic noise;
- the norm ``‖H^{-1/2}g‖``, ``H`` the information, noise in proportion to ``H``: what the run of a plan does;
- the norm ``‖W^{-1/2}g‖`` for the best diagonal ``W``, noise in proportion to ``W``;
- each coordinate, noise of its own for each.

Every way gets the numbers that err least *on these rows*, found by search: one for the first two, one for
each coordinate for the others, which are so given more than a plan could know. Six populations, and many
drawn at random: columns dense, rare, heavy-tailed or far out in some rows, mixed or not, at budgets from
0.1-GDP to 3-GDP.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from benchmarks.written import keep, put

Floats = npt.NDArray[np.float64]

N, DIM, GDP = 10_000, 6, 0.5
WAYS = "plan's metric", "better of the plan's and the best diagonal one"
_FACTORS = 2.0 ** np.arange(-8, 4.5, 0.5)


def logistic(X: Floats, rng: np.random.Generator, weights: Floats) -> Floats:
    """Row gradients at the truth of a logistic regression."""
    p = 1 / (1 + np.exp(-X @ weights))
    return (p - (rng.random(len(X)) < p))[:, None] * X


def linear(X: Floats, errors: Floats) -> Floats:
    """The same of a linear regression with errors of scale 1."""
    return -errors[:, None] * X


def populations(seed: int) -> dict[str, Floats]:
    """Row gradients, ``(n, p)``."""
    rng = np.random.default_rng(seed)
    dense = np.column_stack([np.ones(N), rng.uniform(-1, 1, (N, DIM - 1))])
    weights = rng.normal(0, 0.7, DIM)
    unequal = dense * 10.0 ** -np.linspace(0, 2, DIM)
    rare = np.column_stack([dense[:, :1], rng.random((N, DIM - 1)) < 0.02]).astype(np.float64)
    one = np.column_stack([dense[:, :1], np.eye(DIM - 1)[rng.integers(0, DIM - 1, N)]])
    far = dense.copy()
    far[:, 1] = rng.standard_t(1.5, N)
    both = dense.copy()
    # A hundredth of the rows is far out in one coordinate and as informative as others in the rest.
    both[rng.random(N) < 0.01, 1] *= 1000.0
    return {
        "dense, of equal scale": logistic(dense, rng, weights),
        "of unequal scale, 1 to 0.01": logistic(unequal, rng, weights),
        "sparse: five indicators, each 2 %": logistic(rare, rng, weights),
        "one level of five": logistic(one[:, 1:], rng, weights[1:]),
        "one heavy-tailed column, linear": linear(far, rng.normal(size=N)),
        "1 % a thousand times out in one column": linear(both, rng.normal(size=N)),
    }


def column(rng: np.random.Generator, n: int) -> Floats:
    """One covariate of a kind and a scale drawn at random."""
    dense, kind = rng.uniform(-1, 1, n), rng.integers(4)
    if kind == 1:
        dense = (rng.random(n) < 10 ** -rng.uniform(0.5, 2.5)).astype(np.float64)
    if kind == 2:
        dense = rng.standard_t(rng.uniform(1, 3), n)
    if kind == 3:
        dense[rng.random(n) < 10 ** -rng.uniform(0.5, 2.5)] *= 10 ** rng.uniform(1, 3)
    return dense * 10 ** -rng.uniform(0, 2)


def drawn(seed: int, n: int = 4000) -> tuple[float, float]:
    """Errors of a plan's norm and of the better one, the box's being 1, in a population drawn at random."""
    rng = np.random.default_rng((seed, 1))
    X = np.column_stack([np.ones(n), *(column(rng, n) for _ in range(rng.integers(1, 8)))])
    if rng.random() < 0.5:
        X[:, 1:] = X[:, 1:] @ rng.normal(size=(X.shape[1] - 1, X.shape[1] - 1))
    spread = 1 / np.maximum(X.std(axis=0), 0.3)
    either = logistic(X, rng, rng.normal(0, 0.7, len(spread)) * spread), linear(X, rng.normal(size=n))
    g = either[int(rng.random() < 0.5)]
    # A column that is 0 in all rows says nothing.
    g = g[:, np.any(g != 0, axis=0)]
    gdp = float(10 ** rng.uniform(-1, 0.5))
    box, plan = of_box(g, gdp), of_norm(g, g.T @ g, gdp)
    return plan / box, min(plan, of_diagonal(g, gdp)) / box


def of_norm(g: Floats, metric: Floats, gdp: float = GDP) -> float:
    """The least error under a clip of ``‖W^{-1/2}g‖`` and noise ``W(2B/m)²``."""
    sizes = np.sqrt(np.einsum("ij,ij->i", g @ np.linalg.inv(metric), g))
    return min(
        error(
            g, g * np.minimum(1, bound / np.maximum(sizes, 1e-300))[:, None], metric * (2 * bound / gdp) ** 2
        )
        for bound in np.sqrt(np.mean(sizes**2)) * _FACTORS
    )


def of_diagonal(g: Floats, gdp: float = GDP) -> float:
    """As :func:`of_norm` with the best diagonal metric, which the bound is part of."""

    def at(root: Floats) -> float:
        sizes = np.sqrt(np.sum((g / root) ** 2, axis=1))
        return error(g, g / np.maximum(1, sizes)[:, None], np.diag((2 * root / gdp) ** 2))

    starts = np.sqrt(np.mean(g**2, axis=0)), np.abs(g).max(axis=0), np.ones(g.shape[1])
    return min(_searched(at, min((one * f for f in _FACTORS), key=at)) for one in starts)


def of_box(g: Floats, gdp: float = GDP) -> float:
    """The least error under ``|g_j| ≤ C_j`` and the best noise for each ``C``."""

    def at(bounds: Floats) -> float:
        return error(g, np.clip(g, -bounds, bounds), None, 2 * bounds / gdp)

    starts = np.sqrt(np.mean(g**2, axis=0)), np.abs(g).max(axis=0), np.quantile(np.abs(g), 0.99, axis=0)
    return min(_searched(at, min((one * f for f in _FACTORS), key=at)) for one in starts)


def _searched(error: Callable[[Floats], float], best: Floats) -> float:
    """The lowest error that steps along single coordinates find."""
    step, least = 2.0, error(best)
    while step > 1.1:
        here = np.arange(len(best))
        tried = [best * np.where(here == j, f, 1) for j in here for f in (step, 1 / step)]
        errors = [error(one) for one in tried]
        if min(errors) < least * (1 - 1e-3):
            best, least = tried[int(np.argmin(errors))], min(errors)
        else:
            step **= 0.5
    return least


def error(g: Floats, clipped: Floats, noise: Floats | None, widths: Floats | None = None) -> float:
    """How far the root of the clipped, noised score is from that of ``Σg``, in posterior sds.

    To first order the root moves by ``A^{-1}(Σ clip(g) + N)``, ``A = Σ clip(g)gᵀ``: a clip that takes slope
    away makes its own noise count for more. ``widths``: of a box, whose best diagonal noise is taken.
    """
    information = g.T @ g
    try:
        back = np.linalg.inv(clipped.T @ g)
    except np.linalg.LinAlgError:
        return np.inf
    moved = back @ clipped.sum(axis=0) - np.linalg.solve(information, g.sum(axis=0))
    spread = back.T @ information @ back
    if noise is None:
        # Least Σ q_j N_j at Σ c_j²/N_j = 1: (Σ c_j√q_j)², by Cauchy and Schwarz.
        cost = float(np.sum(widths * np.sqrt(np.diag(spread)))) ** 2
    else:
        cost = float(np.sum(spread * noise))
    return float(np.sqrt((moved @ information @ moved + cost) / g.shape[1]))


def said(ratios: dict[str, list[float]]) -> list[str]:
    """What the page says of populations drawn at random."""
    plan, best = (np.asarray(ratios[name]) for name in WAYS)

    def of(one: Floats) -> str:
        worse = f"more than 1.05 in {np.sum(one > 1.05)}"
        return f"{one.min():.2f} to {one.max():.2f} times the box's (median {np.median(one):.2f}, {worse})"

    return [
        f"Of {len(best)} populations drawn at random (columns dense, rare, heavy-tailed, far out in some",
        f"rows; correlated or not; 0.1 to 3-GDP) the error of a plan's norm was {of(plan)},",
        f"that of the better of it and the best diagonal one {of(best)}.",
    ]


def main() -> None:
    """Means over seeds, kept and put into the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--drawn", type=int, default=60, help="populations drawn at random")
    asked = parser.parse_args()
    seeds = range(asked.seeds)
    errors: dict[str, list[tuple[float, ...]]] = {}
    for seed in seeds:
        for name, g in populations(seed).items():
            norms = (of_norm(g, metric) for metric in (np.eye(g.shape[1]), g.T @ g))
            errors.setdefault(name, []).append((*norms, of_diagonal(g), of_box(g)))
    found = {name: [round(float(one), 3) for one in np.mean(runs, axis=0)] for name, runs in errors.items()}
    against = np.array([drawn(seed) for seed in range(asked.drawn)])
    ratios = {name: np.round(np.sort(one), 3).tolist() for name, one in zip(WAYS, against.T, strict=True)}
    keep(
        "boxes.json",
        {
            "n": N,
            "dim": DIM,
            "gdp": GDP,
            "seeds": len(seeds),
            "errors": found,
            "norm over box, drawn": ratios,
        },
    )
    rows = [f"| {name} | {' | '.join(f'{one:.2f}' for one in each)} |" for name, each in found.items()]
    ways = "norm, isotropic", "norm, metric of the information (plans)", "norm, best diagonal metric", "box"
    head = f"| rows | {' | '.join(ways)} |"
    put("boxes.md", "python -m benchmarks.boxes", [head, "|---|---|---|---|---|", *rows, "", *said(ratios)])
    print("\n".join((*rows, *said(ratios))))


if __name__ == "__main__":
    main()
