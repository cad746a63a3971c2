"""Statements of exact conjugate posteriors: ``δ(ε)`` maximised over every data set and neighbour.

**Guarantee** of each: one exact draw from the posterior satisfies every point of the curve under
``replace_one``, ``n`` public. **Assumptions**: the family is the one named, the rows obey their domain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from private_mcmc.accounting.conjugate import Worst, beta_binomial, dirichlet_categorical, gamma_poisson
from private_mcmc.accounting.curves import Points
from private_mcmc.accounting.statement import Argument, Statement
from private_mcmc.errors import DeclarationError

_EXACT = "exact hockey-stick divergence of conjugate posteriors, maximised over all data sets and neighbours"


def posterior_beta_binomial(
    a: float, b: float, *, n: int, trials: int, temper: float, epsilons: tuple[float, ...]
) -> Statement | None:
    """Binomial(``trials``) rows under a Beta(``a``, ``b``) prior; ``None`` if ``n·trials`` is too large.

    Worst pairs: ``Beta(a + w(k + N), b + w((n−1)N − k))`` against the move back, ``0 ≤ k ≤ (n−1)N``.
    """
    constants = {"a": a, "b": b, "n": n, "trials": trials, "temper": temper}
    return _statement(
        "Beta-Binomial",
        constants,
        epsilons,
        "posterior.beta_binomial",
        lambda at: beta_binomial(a, b, n=n, trials=trials, temper=temper, epsilon=at),
    )


def posterior_dirichlet_categorical(
    concentration: tuple[float, ...], *, n: int, temper: float, epsilons: tuple[float, ...]
) -> Statement | None:
    """Categorical rows under a Dirichlet prior; ``None`` if ``n`` is too large to enumerate."""
    constants = {"concentration": concentration, "n": n, "temper": temper}
    return _statement(
        "Dirichlet-categorical",
        constants,
        epsilons,
        "posterior.dirichlet_categorical",
        lambda at: dirichlet_categorical(concentration, n=n, temper=temper, epsilon=at),
    )


def posterior_gamma_poisson(
    shape: float, *, n: int, largest: int, temper: float, epsilons: tuple[float, ...]
) -> Statement | None:
    """Poisson rows of counts at most ``largest`` under a Gamma prior of any rate; ``None`` if too large."""
    constants = {"shape": shape, "n": n, "largest": largest, "temper": temper}
    return _statement(
        "Gamma-Poisson",
        constants,
        epsilons,
        "posterior.gamma_poisson",
        lambda at: gamma_poisson(shape, n=n, largest=largest, temper=temper, epsilon=at),
    )


def _statement(
    name: str,
    constants: Mapping[str, Any],
    epsilons: tuple[float, ...],
    rule: str,
    worst_at: Callable[[float], Worst | None],
) -> Statement | None:
    for key, value in constants.items():
        if not all(item > 0 for item in (value if isinstance(value, tuple) else (value,))):
            raise DeclarationError(f"{name}: {key}={value} must be positive.")
    points = []
    for at in epsilons:
        worst = worst_at(at)
        if worst is None:
            return None
        points.append((float(at), worst.delta))
    argument = Argument(
        f"{name}: {_EXACT}",
        ("the posterior is conjugate", "every row obeys its domain", "the draw is exact"),
        {**constants, "epsilons": tuple(float(at) for at in epsilons)},
        rule,
    )
    return Statement("replace_one", (Points(tuple(points)),), argument)
