"""A clip for each coordinate, or one of the norm in the run's metric: which errs less at one price?

    python -m benchmarks.boxes   # a minute; writes benchmarks/measured/boxes.json and docs/choosing.md

One release of the sum of clipped row gradients at the mode, under Gaussian noise of cost ``m``-GDP: its error
in posterior sds, bias and noise together, root mean square over coordinates. Four ways of clipping:

- the norm, with isotropic noise;
- the norm ``‖H^{-1/2}g‖``, ``H`` the information, noise in proportion to ``H``: what the run of a plan does;
- the norm ``‖W^{-1/2}g‖`` for the best diagonal ``W``, noise in proportion to ``W``;
- each coordinate, noise of its own for each.

Every way gets the numbers that err least *on these rows*, found by search: one for the first two, one for
each coordinate for the others, which are so given more than a plan could know.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from benchmarks.written import keep, put

Floats = npt.NDArray[np.float64]

N, DIM, GDP = 10_000, 6, 0.5
_FACTORS = 2.0 ** np.arange(-8, 4.5, 0.5)


def logistic(X: Floats, rng: np.random.Generator, weights: Floats) -> tuple[Floats, Floats]:
    """Row gradients at the truth of a logistic regression, and the information."""
    p = 1 / (1 + np.exp(-X @ weights))
    y = rng.random(len(X)) < p
    return (p - y)[:, None] * X, (X * (p * (1 - p))[:, None]).T @ X


def linear(X: Floats, errors: Floats) -> tuple[Floats, Floats]:
    """The same of a linear regression with errors of scale 1."""
    return -errors[:, None] * X, X.T @ X


def populations(seed: int) -> dict[str, tuple[Floats, Floats]]:
    """Row gradients ``(n, p)`` and information ``(p, p)``."""
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


def of_norm(g: Floats, metric: Floats, information: Floats) -> float:
    """The least error under a clip of ``‖W^{-1/2}g‖`` and noise ``W(2B/m)²``."""
    sizes = np.sqrt(np.einsum("ij,ij->i", g @ np.linalg.inv(metric), g))
    noise = np.trace(np.linalg.solve(information, metric))
    found = []
    for bound in np.sqrt(np.mean(sizes**2)) * _FACTORS:
        clipped = g * np.minimum(1, bound / np.maximum(sizes, 1e-300))[:, None]
        found.append(_bias(g, clipped, information) + noise * (2 * bound / GDP) ** 2)
    return float(np.sqrt(min(found) / g.shape[1]))


def of_diagonal(g: Floats, information: Floats) -> float:
    """As :func:`of_norm` with the best diagonal metric, which the bound is part of."""
    weights = np.diag(np.linalg.inv(information))

    def error(root: Floats) -> float:
        sizes = np.sqrt(np.sum((g / root) ** 2, axis=1))
        clipped = g / np.maximum(1, sizes)[:, None]
        noise = float(weights @ root**2) * (2 / GDP) ** 2
        return float(np.sqrt((_bias(g, clipped, information) + noise) / g.shape[1]))

    starts = np.sqrt(np.mean(g**2, axis=0)), np.abs(g).max(axis=0), np.ones(g.shape[1])
    return min(_searched(error, min((one * f for f in _FACTORS), key=error)) for one in starts)


def of_box(g: Floats, information: Floats) -> float:
    """The least error under ``|g_j| ≤ C_j`` and the best noise for each ``C``."""
    weights = np.diag(np.linalg.inv(information))

    def error(bounds: Floats) -> float:
        # Least Σ w_j N_j at Σ (2C_j)²/N_j = m²: (Σ 2C_j√w_j)²/m², by Cauchy and Schwarz.
        noise = float(np.sum(2 * bounds * np.sqrt(weights)) / GDP) ** 2
        return float(np.sqrt((_bias(g, np.clip(g, -bounds, bounds), information) + noise) / g.shape[1]))

    starts = np.sqrt(np.mean(g**2, axis=0)), np.abs(g).max(axis=0), np.quantile(np.abs(g), 0.99, axis=0)
    return min(_searched(error, min((one * f for f in _FACTORS), key=error)) for one in starts)


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


def _bias(g: Floats, clipped: Floats, information: Floats) -> float:
    moved = (clipped - g).sum(axis=0)
    return float(moved @ np.linalg.solve(information, moved))


def main() -> None:
    """Means over seeds, kept and put into the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    seeds = range(parser.parse_args().seeds)
    errors: dict[str, list[tuple[float, ...]]] = {}
    for seed in seeds:
        for name, (g, information) in populations(seed).items():
            norms = (of_norm(g, metric, information) for metric in (np.eye(g.shape[1]), information))
            errors.setdefault(name, []).append((*norms, of_diagonal(g, information), of_box(g, information)))
    found = {name: [round(float(one), 3) for one in np.mean(runs, axis=0)] for name, runs in errors.items()}
    keep("boxes.json", {"n": N, "dim": DIM, "gdp": GDP, "seeds": len(seeds), "errors": found})
    rows = [f"| {name} | {' | '.join(f'{one:.2f}' for one in each)} |" for name, each in found.items()]
    ways = "norm, isotropic", "norm, metric of the information (plans)", "norm, best diagonal metric", "box"
    head = f"| rows | {' | '.join(ways)} |"
    put("choosing.md", "python -m benchmarks.boxes", [head, "|---|---|---|---|---|", *rows])
    print("\n".join(rows))


if __name__ == "__main__":
    main()
