"""Certificates for the posterior itself, from proved constants, and for a slope of rows near one line."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from private_mcmc.accounting.assumptions import (
    CONJUGATE,
    EVERY_DATA_SET,
    EXACT_DRAW,
    IN_DOMAIN,
    RATIO_PAIRS,
    RELATION,
)
from private_mcmc.accounting.composition import capped
from private_mcmc.accounting.curves import gdp
from private_mcmc.accounting.curves.curve import Concentrated, Gaussian, Points, Pure
from private_mcmc.accounting.posterior import conjugate
from private_mcmc.accounting.posterior.normal import Extremes, normal_regression
from private_mcmc.accounting.rounding import product_up, root_down
from private_mcmc.accounting.statement import Argument, Statement
from private_mcmc.errors import DeclarationError
from private_mcmc.records import Constants, Record
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
    replaced = adjacency == "replace_one"
    law = conjugate.beta_binomial if replaced else conjugate.beta_binomial_presence
    constants = {"a": a, "b": b, "n": n, "trials": trials, "temper": temper}
    how = _EXACT if replaced or trials == 1 else _BOUND
    worst = partial(law, a, b, n=n, trials=trials, temper=temper)
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
    law = conjugate.dirichlet_categorical if replaced else conjugate.dirichlet_categorical_presence
    constants = {"concentration": concentration, "n": n, "temper": temper}
    worst = partial(law, concentration, n=n, temper=temper)
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
    worst = partial(conjugate.gamma_poisson, shape, largest=largest, temper=temper)
    if not replaced:
        presence = conjugate.gamma_poisson_presence
        worst = partial(presence, shape, rate, n=n, largest=largest, temper=temper)
    constants = {"shape": shape, "rate": rate, "n": n, "largest": largest, "temper": temper}
    name = f"Gamma-Poisson: {_EXACT if replaced else _BOUND}"
    return _statement(name, constants, epsilons, "gamma_poisson", adjacency, worst)


def _statement(
    theorem: str,
    constants: Constants,
    epsilons: tuple[float, ...],
    rule: str,
    adjacency: Adjacency,
    worst: Callable[..., float],
) -> Statement:
    check_adjacency(adjacency)
    for key, value in constants.items():
        if not all(item > 0 for item in (value if isinstance(value, tuple) else (value,))):
            raise DeclarationError(f"{theorem.split(':')[0]}: {key}={value} must be positive.")
    points = tuple((float(at), worst(epsilon=at)) for at in epsilons)
    argument = Argument(
        theorem,
        (CONJUGATE, IN_DOMAIN, EXACT_DRAW, RELATION[adjacency]),
        {**constants, "epsilons": tuple(float(at) for at in epsilons)},
        f"posterior.{rule}",
    )
    return capped(Statement(adjacency, (Points(points),), argument), constants["n"])


def posterior_bounded(range_b: float, adjacency: Adjacency) -> Statement:
    """One exact posterior draw is ``b``-DP, and ``b²/8``-zCDP as a bounded-range mechanism.

    ``range_b``: ``b ≥ sup_θ − inf_θ`` of ``w(v(θ,d) − v(θ,d'))`` over all row pairs (``replace_one``), or of
    ``w v(θ,d)`` over all rows. Source: Dimitrakakis et al. 2017; Cesar, Rogers 2021.
    """
    if not range_b >= 0:
        raise DeclarationError(f"range_b={range_b}: must be a number in [0, ∞].")
    argument = Argument(
        "bounded log-likelihood ratio (Dimitrakakis et al. 2017; bounded range: Cesar, Rogers 2021)",
        (EVERY_DATA_SET, EXACT_DRAW, RELATION[check_adjacency(adjacency)]),
        {"range_b": float(range_b)},
        "posterior.bounded",
    )
    curves = (Pure(float(range_b)), Concentrated(product_up(range_b, range_b, 0.125)))
    return Statement(adjacency, curves, argument)


def _for_rows(num_rows: int | None) -> Record:
    return {} if num_rows is None else {"num_rows": num_rows}


def posterior_strongly_log_concave(
    sensitivity: float, strong_convexity: float, adjacency: Adjacency, num_rows: int | None = None
) -> Statement:
    """One exact posterior draw is ``Δ/√μ``-GDP when every ``U_D`` is ``μ``-strongly convex.

    ``num_rows``: the number of rows that ``μ`` was proved for, where it depends on that.

    Source: Gopi, Lee, Liu 2022.
    """
    if not (sensitivity >= 0 and 0 < strong_convexity < math.inf):
        raise DeclarationError(
            f"sensitivity={sensitivity}, strong_convexity={strong_convexity}: need Δ ≥ 0 and a finite μ > 0."
        )
    argument = Argument(
        "strongly log-concave posterior (Gopi, Lee, Liu 2022)",
        (EVERY_DATA_SET, EXACT_DRAW, RELATION[check_adjacency(adjacency)]),
        {
            "sensitivity": float(sensitivity),
            "strong_convexity": float(strong_convexity),
            **_for_rows(num_rows),
        },
        "posterior.strongly_log_concave",
    )
    m = product_up(sensitivity, over=(root_down(strong_convexity),))
    return Statement(adjacency, (Gaussian(m),), argument)


def posterior_bounded_gradient(
    gradient_bound: float, prior_strong_convexity: float, adjacency: Adjacency, num_rows: int | None = None
) -> Statement:
    """One exact posterior draw is ``2B/√μ_K``-GDP when only ``|wΣ∇v|_* ≤ B`` and ``K`` is ``μ_K``-convex.

    ``num_rows``: the number of rows that ``B`` is for.

    Source: Bertazzi, Johnston, Roberts, Durmus, Assumption 5.1, by the Langevin limit.
    """
    if not (gradient_bound >= 0 and 0 < prior_strong_convexity < math.inf):
        raise DeclarationError(
            f"gradient_bound={gradient_bound}, prior_strong_convexity={prior_strong_convexity}: "
            "need B ≥ 0 and a finite μ_K > 0."
        )
    argument = Argument(
        "bounded data gradient, log-concave prior (Bertazzi, Johnston, Roberts, Durmus, Assumption 5.1)",
        (EVERY_DATA_SET, EXACT_DRAW, RELATION[check_adjacency(adjacency)]),
        {
            "gradient_bound": float(gradient_bound),
            "prior_strong_convexity": float(prior_strong_convexity),
            **_for_rows(num_rows),
        },
        "posterior.bounded_gradient",
    )
    m = product_up(2.0, gradient_bound, over=(root_down(prior_strong_convexity),))
    return Statement(adjacency, (Gaussian(m),), argument)


def run_distance_at_least(epsilon: float, posterior_delta: float, run_delta: float) -> float:
    """A total variation that the run exceeds for one of two adjacent data sets, rounded down.

    If the run is ``(ε, δ_n)``-DP and the posterior is **not** ``(ε, δ)``-DP, ``δ > δ_n`` (or refused), then
    ``TV > (δ − δ_n) e^{−ε}/(1 + e^{−ε})``: such a run is not close to its posterior.

    Source: BJRD Proposition 3.4.
    """
    gdp.check_epsilon(epsilon)
    gdp.check_delta(posterior_delta)
    gdp.check_delta(run_delta)
    if not posterior_delta > run_delta:
        raise DeclarationError(
            f"posterior_delta={posterior_delta} is not above run_delta={run_delta}: nothing follows."
        )
    decay = math.exp(-epsilon)
    return (posterior_delta - run_delta) * decay / (1 + decay) * (1 - 2.0**-48)


_UP = 1 + 1e-11


def ratio_extremes(
    precision: float, noise: float, *, x_low: float, x_high: float, center: float, width: float, n: int
) -> Extremes:
    """Largest shift of the mean in standard deviations and largest ratio of precisions, one row replaced.

    Prior ``N(0, 1/α)``, noise precision ``β``, rows ``x_l ≤ x ≤ x_h``, ``|y/x − c| ≤ g``. With ``z`` the
    other rows' ``Σx²``, ``a = α + βz``, and ``r_0`` their mean ratio, weighted by ``x²`` (any ratio of the
    domain without others), a row puts the posterior's mean at ``r_0 + p(r − r_0) − αr_0/(a + βx²)``,
    ``p = βx²/(a + βx²)``. Of two rows the ``p(r − r_0)`` differ by at most ``2gp_h``: ratios on both sides of
    ``r_0`` are at most ``2g`` apart, and on one side the larger term counts. The last terms differ by at most
    ``αβ(|c| + g)(x_h² − x_l²)/((a + βx_l²)(a + βx_h²))``. Times the root of a precision these fall with
    ``z``, as does the ratio of the precisions; ``z ≥ (n−1)x_l²``.
    """
    low, high = x_low * x_low, x_high * x_high
    least = (precision + noise * (n - 1) * low) * (1 - 1e-12)
    shortest, longest = least + noise * low, least + noise * high
    pulled = 2 * noise * high * width / longest
    shrunk = precision * (abs(center) + width) * noise * (high - low) / shortest / longest
    moved = (pulled + shrunk) * math.sqrt(longest)
    ratio = 1 + noise * (high - low) / shortest
    return Extremes(moved * _UP, ratio * _UP)


def posterior_normal_ratio(
    precision: float,
    noise: float,
    *,
    x_low: float,
    x_high: float,
    center: float,
    width: float,
    n: int,
    epsilons: tuple[float, ...],
) -> Statement:
    """The posterior slope of ``y = θx + N(0, 1/β)`` under ``θ ~ N(0, 1/α)``, one of ``n`` rows replaced.

    **Guarantee**: one exact posterior draw satisfies every point of the curve under ``replace_one``.
    **Assumptions**: the model is this regression, every row lies in the domain.

    ``precision``: ``α``. ``noise``: ``β``, times the temper. ``0 < x_low ≤ x ≤ x_high``, ``|y/x − center| ≤
    width``. ``epsilons``: where the curve is evaluated.

    Source: Gaussian divergences; the domain of Heller, Fetaya 2023, (5).
    """
    held = {"precision": precision, "noise": noise, "x_low": x_low, "x_high": x_high, "width": width}
    if not (all(0 < value < math.inf for value in held.values()) and math.isfinite(center)):
        raise DeclarationError(f"Normal regression of bounded ratio: {held} must be positive and finite.")
    if not (x_low <= x_high and n >= 1):
        raise DeclarationError(f"Normal regression of bounded ratio: x_low={x_low}, x_high={x_high}, n={n}.")
    found = ratio_extremes(precision, noise, x_low=x_low, x_high=x_high, center=center, width=width, n=n)
    points = tuple((float(at), normal_regression(found, at)) for at in epsilons)
    argument = Argument(
        "Normal regression of bounded ratio: a shift and a change of scale of Gaussian posteriors",
        (RATIO_PAIRS, EXACT_DRAW, RELATION["replace_one"]),
        {**held, "center": center, "n": n, "epsilons": tuple(float(at) for at in epsilons)},
        "posterior.normal_ratio",
    )
    return capped(Statement("replace_one", (Points(points),), argument), n)
