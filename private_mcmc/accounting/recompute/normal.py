"""Recomputations of Normal posteriors, by SciPy's distributions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from private_mcmc.accounting.recompute.conjugate import GRANTED, Array, best_split, each
from private_mcmc.records import Constants, Parts, Record

_SLACK = 1e-12


def normal_mean(adjacency: str, c: Constants, parts: Parts) -> list[Record]:
    """The curve of ``posterior_normal_mean``: events end at the roots of the log ratio, a quadratic."""
    from scipy.stats import norm

    if adjacency == "replace_one":
        return []
    m = np.arange(min(c["n"], 20_000), dtype=np.float64)
    before = c["precision"] + c["step"] * m
    after, weight = before + c["step"], c["step"] * m / before
    predicted = [weight * end + (1 - weight) * c["center"] for end in (c["low"], c["high"])]
    residual = np.max([abs(y - at) for y in (c["low"], c["high"]) for at in predicted], axis=0)
    shift = c["step"] * residual / (abs(c["slope"]) * after)
    far = c["precision"] + c["step"] * len(m)
    widest = max(c["high"], c["center"]) - min(c["low"], c["center"])
    reach = c["step"] * widest / (abs(c["slope"]) * (far + c["step"])) * (far + c["step"]) ** 0.5

    def exact(at: float) -> float:
        found = 0.0
        for level in (at, -at):
            linear, rest = after * shift, np.log1p(c["step"] / before) / 2 - after * shift**2 / 2 - level
            inner = linear**2 + 2 * c["step"] * rest
            turned = linear + np.sqrt(np.maximum(inner, 0))
            ends = [-2 * rest / np.maximum(turned, 1e-300), turned / c["step"]]
            row = [(end - shift) * np.sqrt(after) for end in ends]
            none = [end * np.sqrt(before) for end in ends]
            if level == at:
                gaps = _inside(norm, *row) - math.exp(at) * _inside(norm, *none)
                gaps = np.where(inner > 0, gaps, 0.0)
            else:
                gaps = _beyond(norm, *none) - math.exp(at) * _beyond(norm, *row)
            found = max(found, float(np.max(gaps)))
        return found

    def more(at: float) -> float:
        if not c["n"] > len(m):
            return 0.0
        by_scale = each(lambda e: _scaled(1 + c["step"] / far, e))
        return best_split(each(lambda e: _shifted(reach, e)), by_scale, at)

    points = [(at, min(1.0, max(exact(at), more(at)) * (1 + GRANTED) + 1e-13)) for at in c["epsilons"]]
    return [{"kind": "points", "points": tuple(points)}]


def _inside(law: Any, low: Array, high: Array) -> Array:
    inside: Array = np.where(low > 0, law.sf(low) - law.sf(high), law.cdf(high) - law.cdf(low))
    return inside


def _beyond(law: Any, low: Array, high: Array) -> Array:
    beyond: Array = law.cdf(low) + law.sf(high)
    return beyond


def normal_regression(adjacency: str, c: Constants, parts: Parts) -> list[Record]:
    """The curve of ``posterior_normal_regression``: the same two parts, by SciPy's distributions."""
    alpha, beta, radius, n = c["precision"], c["noise"], c["radius"], c["n"]
    top = (n - 1) * radius**2
    s = np.concatenate([[0.0], np.geomspace(top * 1e-12, top, 4000)]) if top > 0 else np.zeros(2)
    reach = np.minimum((s[1:] * (n - 1)) ** 0.5, (n - 1) * radius)
    least = alpha + beta * s[:-1]
    means = beta * c["response"] * reach / least
    times = 2 if adjacency == "replace_one" else 1
    moves = times * beta * radius * (c["response"] + radius * means) / least
    shift = float(np.max(moves * (alpha + beta * (s[1:] + radius**2)) ** 0.5)) * (1 + _SLACK)
    return _by_legs(c, shift, (1 + beta * radius**2 / alpha) * (1 + _SLACK))


def normal_ratio(adjacency: str, c: Constants, parts: Parts) -> list[Record]:
    """The curve of ``posterior_normal_ratio``, in units of one row at ``x_h``."""
    if adjacency != "replace_one" or not c["x_low"] <= c["x_high"]:
        return []
    share = (c["x_low"] / c["x_high"]) ** 2
    own = c["precision"] / (c["noise"] * c["x_high"] ** 2)
    # Rows in the precision: the prior, the others, and the one that is replaced.
    few, many = own + c["n"] * share, own + (c["n"] - 1) * share + 1
    largest = abs(c["center"]) + c["width"]
    gap = 2 * c["width"] / many + own * largest * (1 - share) / (few * many)
    shift = gap * math.sqrt(c["noise"] * many) * c["x_high"] * (1 + 10 * _SLACK)
    return _by_legs(c, shift, many / few * (1 + 10 * _SLACK))


def _by_legs(c: Constants, shift: float, ratio: float) -> list[Record]:
    points = [
        (at, best_split(each(lambda e: _shifted(shift, e)), each(lambda e: _scaled(ratio, e)), at))
        for at in c["epsilons"]
    ]
    return [{"kind": "points", "points": tuple(points)}]


def _shifted(shift: float, at: float) -> float:
    from scipy.stats import norm

    if shift == 0:
        return 0.0
    return float(norm.sf(at / shift - shift / 2) - np.exp(at + norm.logsf(at / shift + shift / 2)))


def _scaled(ratio: float, at: float) -> float:
    from scipy.stats import chi2

    if not ratio > 1:
        return 0.0
    gap = math.log(ratio) / 2
    wide = 2 * (at + gap) / (ratio - 1)
    best = float(chi2.sf(wide, 1) - math.exp(at) * chi2.sf(wide * ratio, 1))
    if gap > at:
        narrow = 2 * (gap - at) / (ratio - 1)
        best = max(best, float(chi2.cdf(narrow * ratio, 1) - math.exp(at) * chi2.cdf(narrow, 1)))
    return min(1.0, max(0.0, best) + 1e-13)
