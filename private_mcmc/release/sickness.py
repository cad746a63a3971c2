"""Whether released states of a chain can be draws of a posterior: post-processing, free."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

SICK = "The chain is sick"
# Fewer states tell nothing of overshooting; of sizes and halves of chains, fewer draws.
_TELLING, _MANY = 8, 100
# A step that is right follows the state before it, or hardly: below this it overshoots the mode each time.
_OVERSHOT, _APART = -0.5, 1.05


def lag_one(states: Array) -> Array:
    """Autocorrelation of successive states ``(chains, draws, …)`` of each number; 0 where it never moves."""
    centred = states - states.mean(axis=1, keepdims=True)
    size = (centred**2).sum(axis=(0, 1))
    products = (centred[:, 1:] * centred[:, :-1]).sum(axis=(0, 1))
    return np.asarray(np.where(size > 0, products / np.where(size > 0, size, 1.0), 0.0))


def overshot(states: Array) -> npt.NDArray[np.bool_]:
    """Which numbers of ``(chains, draws, …)`` jump over their mode and back: their steps are too long."""
    if states.shape[1] < _TELLING:
        return np.zeros(states.shape[2:], dtype=bool)
    return np.asarray(lag_one(states) < _OVERSHOT)


def sickness(samples: Mapping[str, Array]) -> str:
    """What shows that draws ``(chains, draws, …)`` are not those of a posterior; ``""`` where nothing does.

    Steps that overshoot, an effective sample size that is none, halves of chains that disagree (r̂).
    """
    from numpyro.diagnostics import effective_sample_size, split_gelman_rubin

    found: dict[str, list[str]] = {}
    for name, values in samples.items():
        states = np.asarray(values, dtype=np.float64)
        if states.ndim < 2 or states.shape[1] < _TELLING or not states.size:
            continue
        if np.any(overshot(states)):
            found.setdefault("its steps overshoot", []).append(f"{name} {float(np.min(lag_one(states))):.2f}")
        if states.shape[1] < _MANY:
            continue
        with np.errstate(all="ignore"):  # of numbers that never move
            sizes, rhats = effective_sample_size(states), split_gelman_rubin(states)
        if np.any(np.asarray(sizes) <= 0):
            found.setdefault("its draws count for none", []).append(name)
        worst = float(np.nanmax(rhats, initial=1.0))
        if worst > _APART and math.isfinite(worst):
            found.setdefault("its halves or chains disagree (r̂)", []).append(f"{name} {worst:.2f}")
    if not found:
        return ""
    said = "; ".join(f"{what}: {', '.join(names[:5])}" for what, names in found.items())
    return f"{SICK}, and its draws are not those of the posterior: {said}."
