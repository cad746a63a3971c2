"""Exact hockey-stick divergences of conjugate posteriors, maximised over every data set and neighbour.

A replaced row moves one number: the posteriors of two adjacent data sets are members of a one-parameter
exponential family. Their likelihood ratio is monotone in a statistic, so the worst event is a half line and
its probabilities are two incomplete beta or gamma functions. By the same monotonicity (Neyman, Pearson) a
larger move is never less distinguishable, so only the largest move of a row is taken, from every total that
the other rows can have. Where the other rows add to a shape, a pair with more of them is the same pair after
independent noise (a Gamma variable plus an independent one; for a Beta, ``x/(1−x)`` as a ratio of two, whose
sum is independent of it and has one law under both): divergences fall in the shapes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import permutations
from typing import Any

import numpy as np
from scipy.special import betainc, betaincc, betaln, gammainc, gammaincc, gammaln, log_expit

from private_mcmc.accounting.curves import Points
from private_mcmc.accounting.rounding import FloatArray as Array
from private_mcmc.accounting.statement import RULES, Statement, again, stated
from private_mcmc.errors import DeclarationError
from private_mcmc.target import Adjacency, check_count, check_positive

# Relative accuracy granted to the incomplete beta and gamma functions.
_ACCURACY = 1e-9
# Totals this near to an end are tried one by one, those between in blocks that grow by 2 %.
_EACH = 1_000
_GROWTH = 1.02
# Incomplete beta functions are evaluated up to here only; larger shapes are closer together.
_WIDEST = 1e7
# At a log threshold this low the power in front of an incomplete function's series is all of it.
_DEEP = -50.0
# Least bound that is reported: no divergence here is zero, and floats end near 1e-308.
_LEAST = 1e-300


def log_rising(shape: Array, move: float) -> Array:
    """``log Γ(shape + move) − log Γ(shape)``, without the cancellation of large shapes."""
    return np.asarray(gammaln(move) - betaln(shape, move))


def beta_pair(a: Array, b: Array, move: float, epsilon: float, up: bool) -> Array:
    """``δ(ε)`` of ``Beta(a+move, b)`` from ``Beta(a, b+move)`` (``up``) or the reverse; arrays, rounded up.

    The log ratio is ``move·logit(x)`` plus a constant, so the worst event is ``x > t`` (``x < t``).
    """
    if not up:
        return beta_pair(b, a, move, epsilon, True)
    a, b = np.minimum(a, _WIDEST), np.minimum(b, _WIDEST)
    logit = (epsilon - log_rising(b, move) + log_rising(a, move)) / move
    return excess(_above(a + move, b, logit), _above(a, b + move, logit), epsilon)


def _above(a: Array, b: Array, logit: Array) -> Array:
    """``P[logit(x) > logit]`` under ``Beta(a, b)``, accurate at both ends."""
    low, high = log_expit(logit), log_expit(-logit)
    near = np.where(low > -1.0, betainc(b, a, -np.expm1(low)), betaincc(a, b, np.exp(low)))
    beyond = np.where(low < _DEEP, -np.expm1(_deep_beta(a, b, low)), near)
    below = np.where(high < _DEEP, np.exp(_deep_beta(b, a, high)), betainc(b, a, np.exp(high)))
    return np.where(logit > 0, below, beyond)


def _deep_beta(a: Array, b: Array, log_at: Array) -> Array:
    """``log(x^a/(aB(a, b)))``: near 0 the log of the distribution function."""
    return np.asarray(np.minimum(a * log_at - np.log(a) - betaln(a, b), 0.0))


def gamma_pair(shape: Array, move: float, epsilon: float, up: bool) -> Array:
    """``δ(ε)`` of ``Gamma(shape+move)`` from ``Gamma(shape)``, any common rate (``up``), or the reverse."""
    log_at = ((epsilon if up else -epsilon) + log_rising(shape, move)) / move
    (below, beyond), (moved_below, moved_beyond) = _gamma(shape, log_at), _gamma(shape + move, log_at)
    return excess(moved_beyond, beyond, epsilon) if up else excess(below, moved_below, epsilon)


def _gamma(shape: Array, log_at: Array) -> tuple[Array, Array]:
    """``P[log x < log_at]`` under ``Gamma(shape)``, also where ``x`` is below all floats, and the rest."""
    # log(x^s/Γ(s + 1)): near 0 the log of the distribution function.
    low, deep = log_at < _DEEP, np.minimum(shape * log_at - gammaln(shape + 1), 0.0)
    # A threshold beyond all floats is one that is never passed.
    with np.errstate(over="ignore"):
        at = np.exp(log_at)
    return (
        np.where(low, np.exp(deep), gammainc(shape, at)),
        np.where(low, -np.expm1(deep), gammaincc(shape, at)),
    )


def beta_binomial(
    a: float, b: float, *, n: int, trials: int = 1, temper: float = 1.0, epsilon: float
) -> float:
    """One of ``n`` Binomial(``trials``) rows replaced under a Beta(``a``, ``b``) prior on the probability.

    Bernoulli rows are ``trials=1``. Of very many totals those in the middle are covered in blocks, each by a
    pair that is at least as far apart (``beta_pair`` falls in ``a`` and ``b``).
    """
    total = (n - 1) * trials
    least, most = blocks(total)
    lows = a + temper * least, b + temper * (total - most)
    return max(float(np.max(beta_pair(*lows, temper * trials, epsilon, up))) for up in (True, False))


def dirichlet_categorical(
    concentration: tuple[float, ...], *, n: int, temper: float = 1.0, epsilon: float
) -> float:
    """One of ``n`` categorical rows replaced under a Dirichlet prior.

    Only the two categories that gain and lose a row matter: the log ratio is a function of
    ``x_i/(x_i+x_j)``, which is Beta with the counts of these two. With three or more categories the worst
    other rows fall elsewhere, because ``beta_pair`` falls in both counts.
    """
    total = n - 1 if len(concentration) == 2 else 0
    least, most = blocks(total)
    return max(
        float(np.max(beta_pair(a + temper * least, b + temper * (total - most), temper, epsilon, True)))
        for a, b in set(permutations(concentration, 2))
    )


def gamma_poisson(shape: float, *, largest: int, temper: float = 1.0, epsilon: float, n: int = 1) -> float:
    """One Poisson row of several replaced, counts at most ``largest``, under a Gamma prior on the rate.

    Other rows that count nothing are the worst, because ``gamma_pair`` falls in the shape.
    """
    shapes = np.array([shape], dtype=np.float64)
    return max(float(gamma_pair(shapes, temper * largest, epsilon, up)[0]) for up in (True, False))


def excess(own: Array, other: Array, epsilon: float) -> Array:
    """``own − e^ε other``, rounded up by the accuracy granted to both."""
    with np.errstate(all="ignore"):
        # By its log, since both factors may leave the floats; below the normal numbers nothing is granted.
        beyond = np.where(other > 1e-300, np.exp(epsilon + np.log(other)) * (1 - _ACCURACY), 0.0)
        value = own * (1 + _ACCURACY) - beyond
    # A number that is not one (overflow of a parameter) is the trivial bound.
    value = np.where(np.isnan(value), 1.0, value)
    return np.clip(value, _LEAST, 1.0)


def blocks(total: int, each: int = _EACH) -> tuple[Array, Array]:
    """First and last elements of blocks that cover ``0, …, total``, single numbers near both ends."""
    if total < 4 * each:
        single = np.arange(total + 1, dtype=np.float64)
        return single, single
    half = total // 2
    steps = math.ceil(math.log(half / each) / math.log(_GROWTH))
    growing = np.floor(each * _GROWTH ** np.arange(steps + 1))
    ends = np.concatenate([np.arange(each, dtype=np.float64), np.minimum(growing, half)])
    starts = np.unique(np.concatenate([ends, total - ends + 1]))
    starts = starts[starts <= total]
    return starts, np.append(starts[1:] - 1, float(total))


# By family: its name, and the worst divergence, from the constants and ``ε``.
FAMILIES: dict[str, tuple[str, Callable[..., float]]] = {
    "beta_binomial": ("Beta-Binomial", beta_binomial),
    "dirichlet_categorical": ("Dirichlet-categorical", dirichlet_categorical),
    "gamma_poisson": ("Gamma-Poisson", gamma_poisson),
}


def posterior_conjugate(
    family: str, *, epsilons: Sequence[float], n: int, adjacency: Adjacency = "replace_one", **constants: Any
) -> Statement:
    """One exact draw from a conjugate posterior of ``n`` rows, one of which is replaced.

    **Guarantee**: every point of the curve. **Assumptions**: the model is this one, rows obey their domain.
    ``constants``: those of the family's function in this file.

    ``DeclarationError`` unless rows are replaced and every constant is positive.
    """
    name, worst = FAMILIES[family]
    if adjacency != "replace_one":
        raise DeclarationError(f"{family}: no divergence is known under {adjacency}.")
    check_count("n", n)
    given: dict[str, Any] = {**constants, "n": n}
    for key, value in given.items():
        for each in value if isinstance(value, list | tuple) else (value,):
            check_positive(f"{family}: {key}", each)
    points = tuple((float(at), worst(**given, epsilon=float(at))) for at in epsilons)
    theorem = (
        f"{name}: exact hockey-stick divergence of conjugate posteriors, maximised over all data sets and "
        "neighbours"
    )
    lines = ("the posterior is conjugate", "every row obeys its domain", "the draw is exact")
    known = {**given, "epsilons": tuple(at for at, _ in points)}
    return stated(f"posterior.{family}", theorem, lines, known, Points(points), adjacency=adjacency)


RULES |= {f"posterior.{name}": again(partial(posterior_conjugate, name)) for name in FAMILIES}
