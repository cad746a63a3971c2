"""The smallest changes that would certify the target, each with its computed number."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from private_mcmc.accounting import Statement, gdp, row_sensitivity
from private_mcmc.model import RowModel
from private_mcmc.potential.families import times
from private_mcmc.preflight.certificates import Constants, meets
from private_mcmc.report import number
from private_mcmc.target import Target


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


def is_sayable(value: float) -> bool:
    """Whether a number is far enough from the ends of the floats to be rounded, and to be advice."""
    return 1e-290 < value < 1e290


def rounded_down(value: float) -> float:
    """The shortest decimal at most ``value ≥ 0`` and within 2 % of it, of two digits or more."""
    return _rounded(value, -1)


def rounded_up(value: float) -> float:
    """The shortest decimal at least ``value ≥ 0`` and within 2 % of it, of two digits or more."""
    return _rounded(value, 1)


def _rounded(value: float, side: int) -> float:
    if not is_sayable(value):
        return value
    for digits in (2, 3):
        power = math.floor(math.log10(value)) - digits + 1
        units = value / 10.0**power * (1 - side * 1e-12)
        whole = math.ceil(units) if side > 0 else math.floor(units)
        result = float(f"{whole}e{power}")
        if side * result < side * value:
            result = float(f"{whole + side}e{power}")
        if abs(result - value) <= 0.02 * value:
            break
    return result


def posterior_advice(
    row_model: RowModel, known: Constants, certify: Certify, *, n: int, temper: float, target: Target
) -> tuple[Advice, ...]:
    """Changes of the model or its use after which a certificate meets the target.

    ``certify`` gives the certificates at a temper.
    """
    found: list[Advice] = []
    best = largest_temper(certify, temper, target)
    if best is not None:
        found.append(Advice("temper", best, f"temper to w ≤ {number(best)} (temper={number(best)})"))
    m = gdp.budget(target.epsilon, target.delta)
    if not m > 0:
        text = "with δ > 0 strong log-concavity can certify the posterior"
        return (*found, Advice("delta", None, text))
    if known.subject == "no posterior" and math.isfinite(known.gradient_free):
        bound = number(rounded_up(known.gradient_free))
        text = f"drop the clip or raise it to {bound}, the proved bound of a row's gradient"
        found.append(Advice("clip", None, f"{text}: there is then a posterior to certify"))
    if known.subject == "no posterior":
        return tuple(found)
    mu, per_row = known.strong_convexity, row_sensitivity(1.0, temper, target.adjacency)
    if not known.convex_rows:
        return (*found, *_without_convexity(row_model, known, m, n, per_row, temper))
    if mu > 0 and row_model.predictor is not None:
        found.append(_clip(m * math.sqrt(mu) / per_row))
    if known.gradient < math.inf:
        needed = rounded_up(_square(per_row * known.gradient / m))
        found += _prior(row_model, needed, f"prior precision at least {number(needed)}")
    elif mu == 0:
        needed = rounded_up(_square(per_row / m))
        text = (
            f"bound the rows so that no gradient exceeds C (a Ball or Box, or clip=C), and "
            f"use a prior of precision at least {number(needed)}·C²"
        )
        found += _prior(row_model, needed, text)
    return tuple(item for item in found if item.value is None or is_sayable(item.value))


def _square(value: float) -> float:
    """Infinite where ``**`` would raise."""
    return value * value


def largest_temper(certify: Certify, temper: float, target: Target) -> float | None:
    """The largest temper of two digits below ``temper`` with a certificate; ``None`` if none is found."""

    def holds(value: float) -> bool:
        return any(meets(statement, target) for statement in certify(value))

    low = temper * 1e-6
    if not (low > 0 and holds(low)):
        return None
    high = temper
    while high / low > 1.004:
        middle = math.sqrt(low) * math.sqrt(high)
        low, high = (middle, high) if holds(middle) else (low, middle)
    result = rounded_down(high)
    return result if holds(result) else rounded_down(low)


def _clip(largest: float) -> Advice:
    clip, what = rounded_down(largest), "the posterior of the Huberised likelihood is then certified"
    return Advice("clip", clip, f"clip each row's gradient at {number(clip)}: {what}")


def _prior(row_model: RowModel, needed: float, text: str) -> list[Advice]:
    if not is_sayable(needed):
        return []
    real = {site.name for site in row_model.sites if site.support == "real"}
    weak = [site.name for site in row_model.prior.sites if not site.lower >= needed]
    weakest = [name if name in real else f"the unconstrained value of {name}" for name in weak]
    sites = (
        f" on {', '.join(weakest)}: Normal with sd ≤ {number(rounded_down(needed**-0.5))}" if weakest else ""
    )
    improper = row_model.prior.improper
    flat = f"; {', '.join(improper)} has an improper prior" if improper else ""
    return [Advice("prior precision", needed, text + ("" if "·C²" in text else sites) + flat)]


def _without_convexity(
    row_model: RowModel, known: Constants, m: float, n: int, per_row: float, temper: float
) -> list[Advice]:
    """A clip and a prior: ``2wnC ≤ m√μ_K``, or ``Δ ≤ m√μ`` with ``μ = μ_K`` less what the rows bend down."""
    found = []
    bend = times(temper * n, known.curvature) * (1 + 1e-8)
    mu = known.strong_convexity
    if row_model.predictor is not None and mu > 0:
        largest = max(m * math.sqrt(mu) / (2 * temper * n), m * math.sqrt(max(mu - bend, 0.0)) / per_row)
        found.append(_clip(largest * (1 - 1e-9)))
    if known.gradient < math.inf:
        gradient = _square(2 * temper * n * known.gradient / m)
        needed = rounded_up(min(gradient, bend + _square(per_row * known.gradient / m)) * (1 + 1e-9))
        text = f"prior precision at least {number(needed)} (rows are not convex)"
        found += _prior(row_model, needed, text)
    return [item for item in found if item.value is None or is_sayable(item.value)]
