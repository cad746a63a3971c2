"""Recomputations for ``verify``: constants in, curves out, written apart from the code they check.

Each takes the adjacency, the constants and the parts of a statement and returns every curve that
the constants justify, as plain records. Closed forms of the accountant are recomputed by recursion.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from private_mcmc.accounting import rules_conjugate, rules_langevin

Record = dict[str, Any]
Constants = Mapping[str, Any]
Parts = Sequence[Mapping[str, Any]]


def _gaussian(m: float) -> Record:
    return {"kind": "gaussian", "m": float(m)}


def _pure(level: float) -> Record:
    return {"kind": "pure", "level": float(level)}


def _concentrated(rho: float) -> Record:
    return {"kind": "concentrated", "rho": float(rho)}


def _posterior_bounded(adjacency: str, c: Constants, parts: Parts) -> list[Record]:
    return [_pure(c["range_b"]), _concentrated((c["range_b"] / 2) ** 2 / 2)]


def _posterior_concave(adjacency: str, c: Constants, parts: Parts) -> list[Record]:
    return [_gaussian((c["sensitivity"] ** 2 / c["strong_convexity"]) ** 0.5)]


def _posterior_gradient(adjacency: str, c: Constants, parts: Parts) -> list[Record]:
    return [_gaussian((4 * c["gradient_bound"] ** 2 / c["prior_strong_convexity"]) ** 0.5)]


def _laplace(adjacency: str, c: Constants, parts: Parts) -> list[Record]:
    needed = (c["sensitivity"] + c["dim"] * c["grid"]) / c["scale"]
    if not needed <= c["epsilon"] * (1 + 1e-12):
        return []
    single = [{"kind": "laplace", "level": float(c["epsilon"])}] if c["dim"] == 1 and c["grid"] == 0 else []
    return [_pure(c["epsilon"]), *single]


def _noise(sensitivity: float, scale: float, grid: float | None, entries: float) -> list[Record]:
    if grid is None:
        return [_gaussian((sensitivity**2 / scale**2) ** 0.5)]
    reach = sensitivity / scale + math.sqrt(entries) * grid / scale
    return [_concentrated(reach * reach / 2)]


def _gaussian_noise(adjacency: str, c: Constants, parts: Parts) -> list[Record]:
    return _noise(c["sensitivity"], c["scale"], c["grid"], c["dim"])


def _second_moments(adjacency: str, c: Constants, parts: Parts) -> list[Record]:
    if c["adjacency"] != adjacency:
        return []
    squared = c["radius"] ** 4 * (2 if adjacency == "replace_one" and c["dim"] > 1 else 1)
    return _noise(math.sqrt(squared), c["noise_sd"], c["grid"], float(c["dim"]) ** 2)


def _composition(adjacency: str, c: Constants, parts: Parts) -> list[Record]:
    from private_mcmc.accounting.serial import unplain

    options = [[unplain(curve) for curve in part["curves"]] for part in parts]
    found = []
    for indices in c["choices"]:
        choice = [curves[index] for curves, index in zip(options, indices, strict=True)]
        failures = [curve["failure"] for curve in choice if curve["kind"] == "unless"]
        choice = [curve["inner"] if curve["kind"] == "unless" else curve for curve in choice]
        flat = [
            leaf for curve in choice for leaf in (curve["parts"] if curve["kind"] == "product" else (curve,))
        ]
        merged = []
        squares = sum(leaf["m"] ** 2 for leaf in flat if leaf["kind"] == "gaussian")
        rho = sum(leaf["rho"] for leaf in flat if leaf["kind"] == "concentrated")
        if any(leaf["kind"] == "gaussian" for leaf in flat):
            merged.append(_gaussian(math.sqrt(squares)))
        if any(leaf["kind"] == "concentrated" for leaf in flat):
            merged.append(_concentrated(rho))
        merged += [leaf for leaf in flat if leaf["kind"] not in ("gaussian", "concentrated", "sampled")]
        merged += _counted_together([leaf for leaf in flat if leaf["kind"] == "sampled"])
        whole = merged[0] if len(merged) == 1 else {"kind": "product", "parts": tuple(merged)}
        found.append({"kind": "unless", "inner": whole, "failure": sum(failures)} if failures else whole)
    return found


def _group(adjacency: str, c: Constants, parts: Parts) -> list[Record]:
    (part,) = parts
    scaled = [_for_rows(curve, c["rows"]) for curve in part["curves"]]
    return [curve for curve in scaled if curve is not None]


def _for_rows(curve: Mapping[str, Any], rows: int) -> Record | None:
    if curve["kind"] == "product":
        inner = tuple(_for_rows(leaf, rows) for leaf in curve["parts"])
        return None if None in inner else {"kind": "product", "parts": inner}
    powers = {"gaussian": ("m", 1), "pure": ("level", 1), "laplace": ("level", 1), "concentrated": ("rho", 2)}
    if curve["kind"] not in powers:
        return None
    name, power = powers[curve["kind"]]
    return {"kind": curve["kind"], name: float(rows**power * float(curve[name]))}


def _counted_together(leaves: Sequence[Record]) -> list[Record]:
    kept: list[Record] = []
    for leaf in leaves:
        same = [old for old in kept if all(old[key] == leaf[key] for key in ("pair", "rate", "ratio"))]
        if same:
            same[0]["steps"] += leaf["steps"]
        else:
            kept.append(dict(leaf))
    return kept


def _adaptive(adjacency: str, c: Constants, parts: Parts) -> list[Record]:
    spent = sum(min(_gaussian_levels(part)) ** 2 for part in parts)
    return [_gaussian(c["budget"])] if spent <= c["budget"] ** 2 else []


def _gaussian_levels(part: Mapping[str, Any]) -> list[float]:
    return [curve["m"] for curve in part["curves"] if curve["kind"] == "gaussian"] or [math.inf]


def _stepwise(adjacency: str, c: Constants, parts: Parts) -> list[Record]:
    level, miss = 0.0, 0.0
    for epsilon, delta in c["steps"].values():
        level, miss = level + epsilon, miss + delta
    return [{"kind": "points", "points": ((level, min(1.0, miss)),)} if miss > 0 else _pure(level)]


def _curvature_tested(adjacency: str, c: Constants, parts: Parts) -> list[Record]:
    from private_mcmc.accounting.serial import unplain

    (part,) = parts
    tail = math.erfc((c["margin"] - c["rounding"]) / c["noise_sd"] / math.sqrt(2)) / 2
    if not (tail <= c["failure"] * (1 + 1e-9) and c["rounding"] >= 0):
        return []
    # The test itself is among the parts: its noise is the noise of the margin.
    scales = [test["argument"]["constants"]["scale"] for test in _of_rule(part, "noise.gaussian")]
    if not any(0 < scale <= c["noise_sd"] * (1 + 1e-9) for scale in scales):
        return []
    lower = max(0.0, c["released"] - c["margin"])
    for run in _of_rule(part, "langevin"):
        known = unplain(run["argument"]["constants"])
        ceiling = known["prior_strong_convexity"] + known["temper"] * lower
        # A path needs no convexity; hidden states rest on the prior's and on what was tested.
        if known["release"] == "path":
            continue
        # Where K is not convex, what it bends down may outweigh what the rows bend up.
        if not (known["prior_strong_convexity"] > 0 or known.get("prior_convex") is True):
            return []
        if not known["strong_convexity"] <= ceiling * (1 + 1e-12):
            return []
    return [
        {"kind": "unless", "inner": unplain(curve), "failure": float(c["failure"])}
        for curve in part["curves"]
    ]


def _of_rule(part: Mapping[str, Any], rule: str) -> list[Mapping[str, Any]]:
    own = [part] if part["argument"]["rule"] == rule else []
    return own + [found for inner in part["parts"] for found in _of_rule(inner, rule)]


RULES: Mapping[str, Callable[[str, Constants, Parts], list[Record]]] = {
    "posterior.bounded": _posterior_bounded,
    "posterior.strongly_log_concave": _posterior_concave,
    "posterior.bounded_gradient": _posterior_gradient,
    "posterior.beta_binomial": rules_conjugate.beta_binomial,
    "posterior.dirichlet_categorical": rules_conjugate.dirichlet_categorical,
    "posterior.gamma_poisson": rules_conjugate.gamma_poisson,
    "posterior.normal_mean": rules_conjugate.normal_mean,
    "posterior.normal_regression": rules_conjugate.normal_regression,
    "noise.laplace": _laplace,
    "noise.gaussian": _gaussian_noise,
    "noise.second_moments": _second_moments,
    "langevin": rules_langevin.langevin,
    "composition": _composition,
    "group": _group,
    "adaptive": _adaptive,
    "stepwise": _stepwise,
    "curvature.tested": _curvature_tested,
}
