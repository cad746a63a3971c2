"""Statements of exact conjugate posteriors: ``δ(ε)`` maximised over every data set and neighbour.

**Guarantee** of each: one exact draw from the posterior satisfies every point of the curve under the
adjacency. **Assumptions**: the family is the one named, the rows obey their domain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from private_mcmc.accounting.assumptions import CONJUGATE, EXACT_DRAW, IN_DOMAIN, RELATION
from private_mcmc.accounting.composition.capped import capped
from private_mcmc.accounting.curves.curve import Points
from private_mcmc.accounting.posterior import conjugate, conjugate_presence
from private_mcmc.accounting.statement import Argument, Statement
from private_mcmc.errors import DeclarationError
from private_mcmc.target import Adjacency, check_adjacency

_EXACT = "exact hockey-stick divergence of conjugate posteriors, maximised over all data sets and neighbours"
_BOUND = "hockey-stick divergence of conjugate posteriors, bounded over all data sets and neighbours"


def posterior_beta_binomial(
    a: float,
    b: float,
    *,
    n: int,
    trials: int,
    temper: float,
    epsilons: tuple[float, ...],
    adjacency: Adjacency = "replace_one",
) -> Statement:
    """Binomial(``trials``) rows under a Beta(``a``, ``b``) prior.

    Worst pairs under ``replace_one``: ``Beta(a + w(k + N), b + w((n−1)N − k))`` against the move back,
    ``0 ≤ k ≤ (n−1)N``.
    """

    def worst(at: float) -> float:
        if adjacency == "replace_one":
            return conjugate.beta_binomial(a, b, n=n, trials=trials, temper=temper, epsilon=at).delta
        return conjugate_presence.beta_binomial(a, b, n=n, trials=trials, temper=temper, epsilon=at)

    constants = {"a": a, "b": b, "n": n, "trials": trials, "temper": temper}
    how = _EXACT if adjacency == "replace_one" or trials == 1 else _BOUND
    return _statement(f"Beta-Binomial: {how}", constants, epsilons, "beta_binomial", adjacency, worst)


def posterior_dirichlet_categorical(
    concentration: tuple[float, ...],
    *,
    n: int,
    temper: float,
    epsilons: tuple[float, ...],
    adjacency: Adjacency = "replace_one",
) -> Statement:
    """Categorical rows under a Dirichlet prior."""
    replaced = adjacency == "replace_one"

    def worst(at: float) -> float:
        if replaced:
            return conjugate.dirichlet_categorical(concentration, n=n, temper=temper, epsilon=at).delta
        return conjugate_presence.dirichlet_categorical(concentration, n=n, temper=temper, epsilon=at)

    constants = {"concentration": concentration, "n": n, "temper": temper}
    name = f"Dirichlet-categorical: {_EXACT}"
    return _statement(name, constants, epsilons, "dirichlet_categorical", adjacency, worst)


def posterior_gamma_poisson(
    shape: float,
    rate: float,
    *,
    n: int,
    largest: int,
    temper: float,
    epsilons: tuple[float, ...],
    adjacency: Adjacency = "replace_one",
) -> Statement:
    """Poisson rows of counts at most ``largest``; ``rate`` is the Gamma prior's over a row's exposure."""
    replaced = adjacency == "replace_one"

    def worst(at: float) -> float:
        if replaced:
            return conjugate.gamma_poisson(shape, largest=largest, temper=temper, epsilon=at).delta
        return conjugate_presence.gamma_poisson(shape, rate, n=n, largest=largest, temper=temper, epsilon=at)

    constants = {"shape": shape, "rate": rate, "n": n, "largest": largest, "temper": temper}
    name = f"Gamma-Poisson: {_EXACT if replaced else _BOUND}"
    return _statement(name, constants, epsilons, "gamma_poisson", adjacency, worst)


def _statement(
    theorem: str,
    constants: Mapping[str, Any],
    epsilons: tuple[float, ...],
    rule: str,
    adjacency: Adjacency,
    worst: Callable[[float], float],
) -> Statement:
    check_adjacency(adjacency)
    for key, value in constants.items():
        if not all(item > 0 for item in (value if isinstance(value, tuple) else (value,))):
            raise DeclarationError(f"{theorem.split(':')[0]}: {key}={value} must be positive.")
    points = tuple((float(at), worst(at)) for at in epsilons)
    argument = Argument(
        theorem,
        (CONJUGATE, IN_DOMAIN, EXACT_DRAW, RELATION[adjacency]),
        {**constants, "epsilons": tuple(float(at) for at in epsilons)},
        f"posterior.{rule}",
    )
    return capped(Statement(adjacency, (Points(points),), argument), constants["n"])
