"""What is proved of one exact posterior draw, for every data set, and what would be, of it or of a run."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from private_mcmc.accounting import (
    Statement,
    gdp,
    of_unit,
    posterior_bounded_gradient,
    posterior_strongly_log_concave,
    row_sensitivity,
)
from private_mcmc.accounting.rounding import product_up
from private_mcmc.arguments import Guarantee
from private_mcmc.errors import NotPrivate
from private_mcmc.model import RowModel
from private_mcmc.potential.potential import largest_eigenvalue, never_clips
from private_mcmc.preflight.conjugates import Conjugate, conjugate, conjugate_certificate
from private_mcmc.report import number, rounded_down, rounded_up
from private_mcmc.schedule import Matrix
from private_mcmc.target import Target, check_positive

# In the place of the gradient of rows that read no parameter.
_LEAST = 1e-300


Subject = Literal["posterior", "Huberised posterior", "no posterior"]
VerdictWord = Literal["private", "not private", "unknown"]


@dataclass(frozen=True)
class Constants:
    """Constants of ``U = K + w Σ v_i`` for every data set of the domain, in one metric.

    Attributes:
        subject: the density that certificates and refutations are about. ``no posterior`` when rows of
            several predictors, or none, are clipped: the clipped field is then no gradient. A loss
            of one predictor whose derivative is clipped is again a function of it, its "Huberised" version.
        gradient: proved bound ``C`` on one row's gradient, clipping included; ``inf`` if there is none.
        gradient_free: the same without clipping.
        curvature: proved bound on the Hessian of one row, clipping included.
        strong_convexity: ``μ_K`` of the prior.
        convex_rows: every row's loss is convex, clipping included.
        conjugate: the conjugate family, if rows are proved to be of one and are not clipped.
    """

    subject: Subject
    gradient: float
    gradient_free: float
    curvature: float
    strong_convexity: float
    convex_rows: bool
    conjugate: Conjugate | None

    def convexity(self, weight: float) -> float:
        """``μ`` of ``U`` for rows of total weight ``weight``: ``μ_K``, less what they may bend down."""
        if self.convex_rows:
            return self.strong_convexity
        loss = product_up(weight, self.curvature)
        return max(self.strong_convexity - loss * (1 + 1e-9), 0.0) if math.isfinite(loss) else 0.0


def constants(row_model: RowModel, clip: float | None, preconditioner: Matrix | None = None) -> Constants:
    """Collect the constants of a model whose rows are clipped at ``clip`` (``None``: not clipped).

    All of them in the metric of ``preconditioner``, in which clipping is measured too.
    """
    if clip is not None:
        check_positive("clip", clip)
    rows = row_model.constants
    widest = largest_eigenvalue(preconditioner)
    # Of the model itself nothing is proved where kernels may have to shorten a design, or hold an outcome.
    steep, bend = (rows.gradient_bound, rows.curvature_bound) if rows.proved else (math.inf, math.inf)
    free = product_up(math.sqrt(widest) * (1 + 1e-15), steep)
    idle = clip is None or never_clips(free, clip, row_model)
    single = row_model.predictor is not None
    return Constants(
        subject="posterior" if idle else ("Huberised posterior" if single else "no posterior"),
        gradient=max(free if clip is None else min(free, clip), _LEAST),
        gradient_free=free,
        curvature=product_up(widest * (1 + 1e-15), bend),
        strong_convexity=row_model.prior.in_metric(preconditioner)[0],
        convex_rows=rows.convex and rows.proved and (idle or single),
        # Of persons it would have to be maximised again, over every number of rows on each side.
        conjugate=conjugate(row_model) if idle and row_model.unit is None else None,
    )


def certificates(
    row_model: RowModel, known: Constants, *, n: int, temper: float, target: Target, whole_curve: bool = True
) -> tuple[Statement, ...]:
    """Every certificate whose assumptions are proved, best at the target first.

    - strongly log-concave: ``Δ/√μ``-GDP, ``Δ = 2wC`` or ``wC``, ``μ`` the prior's for convex rows, and
      the prior's less ``wn`` times a row's curvature for others;
    - bounded gradient: ``2B/√μ_K``-GDP, ``B = wnC``;
    - exact conjugate families, where clipping is idle.

    ``whole_curve=False`` leaves the exact ones at the target's ε alone, which is quicker.

    **Guarantee**: each holds for one exact draw of ``known.subject``. None where that is no posterior.
    """
    if known.subject == "no posterior":
        return ()
    found: list[Statement] = []
    if known.strong_convexity > 0 and known.gradient < math.inf:
        mu = known.convexity(temper * n)
        if mu > 0:
            sensitivity = _product(temper, row_sensitivity(known.gradient, 1.0, target.adjacency))
            found.append(posterior_strongly_log_concave(sensitivity, mu, target.adjacency, n))
        bound = _product(temper, n * known.gradient * (1 + 1e-12))
        found.append(posterior_bounded_gradient(bound, known.strong_convexity, target.adjacency, n))
    if known.conjugate is not None:
        exact = conjugate_certificate(
            known.conjugate, n=n, temper=temper, target=target, whole_curve=whole_curve
        )
        found += [] if exact is None else [exact]

    def rank(statement: Statement) -> tuple[float, float]:
        return statement.delta(target.epsilon), statement.epsilon(max(target.delta, 1e-300))

    return tuple(sorted((of_unit(statement, row_model.unit) for statement in found), key=rank))


def meets(statement: Statement, target: Target) -> bool:
    """Whether a statement certifies the target."""
    return statement.adjacency == target.adjacency and bool(statement.delta(target.epsilon) <= target.delta)


def _product(first: float, second: float) -> float:
    """Of two bounds; what is too small for a float is still not nothing."""
    return max(first * second, _LEAST) if second > 0 else 0.0


# Of numbers that are said, and room for their rounding.
_DIGITS, _LESS = 3, 1 - 1e-8


@dataclass(frozen=True)
class Advice:
    """One change that would certify the target, with its number.

    ``change`` is a stable key (``temper``, ``clip``, ``prior precision``, ``time``, ``delta``), ``value`` the
    computed number, ``text`` the sentence.
    """

    change: str
    value: float | None
    text: str
    concerns: Literal["posterior", "run"] = "posterior"


Certify = Callable[[float], tuple[Statement, ...]]


def posterior_advice(
    row_model: RowModel, known: Constants, certify: Certify, *, n: int, temper: float, target: Target
) -> tuple[Advice, ...]:
    """Changes of the model or its use after which a certificate meets the target.

    ``certify`` gives the certificates at a temper. A clip and a prior meet it where ``2wnC ≤ m√μ_K``, or
    where ``Δ ≤ m√μ`` with ``μ = μ_K`` less what rows that are not convex bend down.
    """
    found: list[Advice] = []
    best = largest_temper(certify, temper, target)
    if best is not None:
        found.append(Advice("temper", best, f"temper to w ≤ {number(best)} (temper={number(best)})"))
    m = gdp.budget(target.epsilon, target.delta)
    if not m > 0:
        return (*found, Advice("delta", None, "with δ > 0 strong log-concavity can certify the posterior"))
    if known.subject == "no posterior":
        if math.isfinite(known.gradient_free):
            bound = number(rounded_up(known.gradient_free, _DIGITS))
            text = f"drop the clip or raise it to {bound}, the proved bound of a row's gradient"
            found.append(Advice("clip", None, f"{text}: there is then a posterior to certify"))
        return tuple(found)
    mu, per_row = known.strong_convexity, row_sensitivity(1.0, temper, target.adjacency)
    bend = 0.0 if known.convex_rows else product_up(temper * n, known.curvature) * (1 + 1e-8)
    if mu > 0 and row_model.predictor is not None:
        largest = max(m * math.sqrt(mu) / (2 * temper * n), m * math.sqrt(max(mu - bend, 0.0)) / per_row)
        clip = rounded_down(largest * _LESS, _DIGITS)
        what = "the posterior of the Huberised likelihood is then certified"
        found.append(Advice("clip", clip, f"clip each row's gradient at {number(clip)}: {what}"))
    bounded = known.gradient < math.inf
    # Of rows that are not convex what they bend down does not scale with C².
    if bounded or (mu == 0 and known.convex_rows):
        gradient = known.gradient if bounded else 1.0
        ways = (2 * temper * n * gradient / m, 0.0), (per_row * gradient / m, bend)
        needed = rounded_up(min(slope * slope + least for slope, least in ways) / _LESS, _DIGITS)
        if bounded:
            text = f"prior precision at least {number(needed)}{_weak_sites(row_model, needed)}"
        else:
            text = f"clip the rows (clip=C), and use a prior of precision at least {number(needed)}·C²"
        found.append(Advice("prior precision", needed, text))
    return tuple(item for item in found if item.value is None or 1e-290 < item.value < 1e290)


def largest_temper(certify: Certify, temper: float, target: Target) -> float | None:
    """The largest temper of few digits below ``temper`` with a certificate; ``None`` if none is found."""

    def holds(value: float) -> bool:
        return any(meets(statement, target) for statement in certify(value))

    low, high = temper * 1e-6, temper
    if not (low > 0 and holds(low)):
        return None
    while high / low > 1.002:
        middle = math.sqrt(low) * math.sqrt(high)
        low, high = (middle, high) if holds(middle) else (low, middle)
    return rounded_down(low * _LESS, _DIGITS)


def certified_temper(
    reading: RowModel, target: Target, n: int, guarantee: Guarantee
) -> tuple[float, Statement | None]:
    """A weight ``w ≤ 1`` and the certificate that one exact draw of ``exp(−K − wΣv)`` meets the target.

    Under ``guarantee="run"`` 1, without one.

    Raises:
        NotPrivate: if no weight is certified.
    """
    if guarantee == "run":
        return 1.0, None
    known = constants(reading, None, None)

    def certify(temper: float) -> tuple[Statement, ...]:
        found = certificates(reading, known, n=n, temper=temper, target=target)
        return tuple(statement for statement in found if meets(statement, target))

    temper = 1.0 if certify(1.0) else largest_temper(certify, 1.0, target)
    if temper is None:
        raise NotPrivate(
            "guarantee='posterior': no weight of the likelihood makes the posterior private by a certificate "
            "that this library knows; see preflight for why. guarantee='run' rests on the run's noise alone."
        )
    return temper, certify(temper)[0]


def _weak_sites(row_model: RowModel, needed: float) -> str:
    real = {site.name for site in row_model.sites if site.support == "real"}
    weak = [site.name for site in row_model.sites if not row_model.proved(site)[0] >= needed]
    weakest = [name if name in real else f"the unconstrained value of {name}" for name in weak]
    sd = number(rounded_down(needed**-0.5, _DIGITS)) if 1e-290 < needed < 1e290 else "0"
    return f" on {', '.join(weakest)}: Normal with sd ≤ {sd}" if weakest else ""


def run_advice(row_model: RowModel, known: Constants, temper: float, target: Target) -> tuple[Advice, ...]:
    """Langevin time ``γT`` whose path meets the target, ``m² = γTΔ²/2``, whatever the posterior is."""
    bounded = math.isfinite(known.gradient)
    m = gdp.budget(target.epsilon, target.delta)
    moved = row_sensitivity(known.gradient if bounded else 1.0, temper, target.adjacency)
    time = 2 * (m / moved) ** 2 * _LESS if 1e-140 < moved < 1e140 else 0.0
    if not 1e-290 < time < 1e290:
        return ()
    time, clip, what = rounded_down(time, _DIGITS), "", "of at most"
    if not bounded:
        clip, what = "clip each row's gradient at any C and ", "times C² of at most"
        if row_model.predictor is None:
            clip = "clip each row's gradient at any C, which leaves these rows no posterior, and "
    text = (
        f'{clip}rely on the run alone (guarantee="run"): the path of one chain meets the target for a '
        f"Langevin time (step size × steps) {what} {number(time)}"
    )
    return (Advice("time", time, text, "run"),)
