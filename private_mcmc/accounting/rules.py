"""Recomputations for ``verify``: constants in, curves out, written apart from the code they check.

Each takes the adjacency, the constants and the parts of a statement and returns every curve that
the constants justify, as plain records. Closed forms of the accountant are recomputed by recursion.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

from private_mcmc.accounting import rules_conjugate

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


def _data_sensitivity(adjacency: str, c: Constants) -> float:
    """``Δ`` of the full sum with the rounding difference of two float64 sums, from the declaration."""
    rows = c["num_rows"]
    unit = 2.0**-53
    relative = 2 * rows * math.sqrt(c["condition_number"]) * (rows * unit) / (1 - rows * unit)
    one_row = 2 if adjacency == "replace_one" else 1
    return float(c["temper"] * c["clip"] * (one_row + relative))


def _sizes(c: Constants) -> tuple[float, ...]:
    given = c["step_size"]
    return given if isinstance(given, tuple) else (given,) * c["num_steps"]


def _ends(c: Constants) -> tuple[int, ...]:
    release = c["release"]
    if isinstance(release, tuple):
        return release
    return (c["num_steps"],)


def _path_square(c: Constants, delta: float) -> float:
    total = 0.0
    for size in _sizes(c)[: _ends(c)[-1]]:
        total += (size * delta) ** 2 / (2 * size * c["noise_ratio"])
    return total


def _run_m(c: Constants, square: float) -> Record:
    return _gaussian(math.sqrt(c["num_chains"] * square) * (1 + 1e-9))


def _langevin_path(adjacency: str, c: Constants, parts: Parts) -> list[Record]:
    delta = _data_sensitivity(adjacency, c)
    if not math.isclose(delta, c["sensitivity"], rel_tol=1e-12):
        return []
    return [_run_m(c, _path_square(c, delta))]


def _maps(size: float, c: Constants, delta: float) -> list[tuple[float, float]]:
    """``(ρ, s)`` of every modulus that the constants justify at this step size with ``ρ ≤ 1``."""
    found = []
    mu, smooth = c["strong_convexity"], c["smoothness"]
    found.append(
        (max(1 - size * mu, size * smooth - 1), size * delta) if mu > 0 and smooth < 2 / size else None
    )
    found.append((1.0, size * delta) if (c["convex"] or mu > 0) and smooth <= 2 / size else None)
    mu, smooth = c["prior_strong_convexity"], c["prior_smoothness"]
    bound = min(c["gradient_bound"], c["temper"] * c["num_rows"] * c["clip"])
    good = math.isfinite(smooth) and math.isfinite(bound)
    found.append((max(abs(1 - size * mu), abs(1 - size * smooth)), 2 * size * bound) if good else None)
    return found  # type: ignore[return-value]


def _chain_square(maps: Sequence[tuple[float, float]], variances: Sequence[float], diameter: float) -> float:
    """Mean shift squared over variance of the linear chain ``e ← ρe + s``, from every admissible start."""
    shift, spread, path = 0.0, 0.0, 0.0
    for (rho, s), variance in zip(maps, variances, strict=True):
        shift, spread = rho * shift + s, rho * rho * spread + variance
        path += s * s / variance
    exact = shift * shift / spread
    uniform = len(set(maps)) == 1 and len(set(variances)) == 1
    if max(rho for rho, _ in maps) > 1:
        return path
    if not uniform:
        return min(path, exact) if _nonnegative(maps, variances) else path
    best = exact
    if math.isfinite(diameter):
        (rho, s), variance = maps[0], variances[0]
        shift, spread = diameter, 0.0
        for _ in maps:
            shift, spread = rho * shift + s, rho * rho * spread + variance
            best = min(best, shift * shift / spread)
    return best


def _nonnegative(maps: Sequence[tuple[float, float]], variances: Sequence[float]) -> bool:
    """Whether the optimal moves of the linear chain keep the remaining distance nonnegative."""
    weight, weights = 1.0, []
    for rho, _ in reversed(maps):
        weights.append(weight)
        weight *= rho
    weights.reverse()
    total = sum(w * s for w, (_, s) in zip(weights, maps, strict=True))
    energy = sum(w * w * v for w, v in zip(weights, variances, strict=True))
    left = 0.0
    for w, v, (rho, s) in zip(weights, variances, maps, strict=True):
        left = rho * left + s - total * w * v / energy
        if left < -1e-12 * s:
            return False
    return True


def _langevin_affine(adjacency: str, c: Constants, parts: Parts) -> list[Record]:
    delta = _data_sensitivity(adjacency, c)
    if not math.isclose(delta, c["sensitivity"], rel_tol=1e-12):
        return []
    sizes = _sizes(c)
    table = {size: _maps(size, c, delta) for size in set(sizes)}
    found = []
    for kind in range(3):
        if any(maps[kind] is None for maps in table.values()):
            continue
        square, begin = 0.0, 0
        for end in _ends(c):
            stretch = sizes[begin:end]
            square += _chain_square(
                [table[size][kind] for size in stretch],
                [2 * size * c["noise_ratio"] for size in stretch],
                c["diameter"],
            )
            begin = end
        found.append(_run_m(c, square))
    return found


def _composition(adjacency: str, c: Constants, parts: Parts) -> list[Record]:
    from private_mcmc.accounting.serial import unplain

    found = []
    for choice in product(*([unplain(curve) for curve in part["curves"]] for part in parts)):
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
        merged += [leaf for leaf in flat if leaf["kind"] not in ("gaussian", "concentrated")]
        found.append(merged[0] if len(merged) == 1 else {"kind": "product", "parts": tuple(merged)})
    return found


def _adaptive(adjacency: str, c: Constants, parts: Parts) -> list[Record]:
    spent = sum(min(_gaussian_levels(part)) ** 2 for part in parts)
    return [_gaussian(c["budget"])] if spent <= c["budget"] ** 2 else []


def _gaussian_levels(part: Mapping[str, Any]) -> list[float]:
    return [curve["m"] for curve in part["curves"] if curve["kind"] == "gaussian"] or [math.inf]


RULES: Mapping[str, Callable[[str, Constants, Parts], list[Record]]] = {
    "posterior.bounded": _posterior_bounded,
    "posterior.strongly_log_concave": _posterior_concave,
    "posterior.bounded_gradient": _posterior_gradient,
    "posterior.beta_binomial": rules_conjugate.beta_binomial,
    "posterior.dirichlet_categorical": rules_conjugate.dirichlet_categorical,
    "posterior.gamma_poisson": rules_conjugate.gamma_poisson,
    "noise.laplace": _laplace,
    "noise.gaussian": _gaussian_noise,
    "noise.second_moments": _second_moments,
    "langevin.path": _langevin_path,
    "langevin.affine": _langevin_affine,
    "composition": _composition,
    "adaptive": _adaptive,
}
