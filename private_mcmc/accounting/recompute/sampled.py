"""Recomputation of the bounds of sampled batches: which pair is composed, how often, at which ratio."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

from private_mcmc.accounting.recompute.runs import Constants, step_sizes, used_sizes

Record = dict[str, Any]

_SLACK = 1e-9


def _row_ratio(c: Constants, row: float, size: float) -> float:
    return math.sqrt(size / (2 * c["noise_ratio"])) * row * (1 + _SLACK)


def _pair(adjacency: str, c: Constants) -> tuple[str, float]:
    batch = c["batch"]
    if batch["scheme"] == "fixed":
        return "fixed", batch["size"] / c["num_rows"]
    if batch["scheme"] != "poisson":
        raise ValueError("no amplification is proved for these batches")
    return ("replace_one" if adjacency == "replace_one" else "add_remove"), batch["rate"]


def _sampled(pair: str, rate: float, ratio: float, steps: int) -> Record:
    return {"kind": "sampled", "pair": pair, "rate": float(rate), "ratio": float(ratio), "steps": int(steps)}


def sampled_path(adjacency: str, c: Constants, row: float, record: Mapping[str, Any]) -> Record:
    """All states, the batches hidden: every step at least at its own ratio."""
    pair, rate = _pair(adjacency, c)
    if record["pair"] != pair:
        raise ValueError("the pair is not that of these batches")
    charged = _charged(c, row, record)
    return _one([_sampled(pair, rate, ratio, count * c["num_chains"]) for ratio, count in charged])


def truncated_path(c: Constants, row: float, record: Mapping[str, Any]) -> Record:
    """The same for batches with a cap."""
    batch = c["batch"]
    if batch["scheme"] != "truncated_poisson":
        raise ValueError("the batches are not truncated")
    shared = {"kind": "truncated", "rate": float(batch["rate"]), "cap": int(batch["size"])}
    return _one(
        [
            shared | {"ratio": float(ratio), "steps": int(count * c["num_chains"]), "max_rows": c["num_rows"]}
            for ratio, count in _charged(c, row, record)
        ]
    )


def _one(pieces: list[Record]) -> Record:
    return pieces[0] if len(pieces) == 1 else {"kind": "product", "parts": tuple(pieces)}


def _charged(c: Constants, row: float, record: Mapping[str, Any]) -> list[tuple[float, int]]:
    """The recorded ratios and counts, if they charge every step at least its ratio."""
    needed: Counter[float] = Counter()
    for size, count in used_sizes(c).items():
        needed[_row_ratio(c, row, size)] += count
    charged = list(record["steps"])
    if sum(count for _, count in charged) != needed.total():
        raise ValueError("the charged steps are not all steps")
    for ratio in needed:
        most = sum(count for other, count in needed.items() if other >= ratio)
        if sum(count for other, count in charged if other >= ratio * (1 - 1e-12)) < most:
            raise ValueError("some steps are charged below their ratio")
    return charged


def sampled_last(adjacency: str, c: Constants, row: float, record: Mapping[str, Any]) -> Record:
    """The last state: coupled for ``first`` steps, then a share of the noise hides the sampled row."""
    pair, rate = _pair(adjacency, c)
    size, *others = set(step_sizes(c))
    if pair == "fixed" or others or c["release"] != "last" or not 0 < record["share"] < 1:
        raise ValueError("only the last state of a Poisson-sampled chain with constant steps has this bound")
    mu, smooth = c["strong_convexity"], c["smoothness"]
    if not (c["convex"] or mu > 0) or not smooth <= 2 / size:
        raise ValueError("the step is not known to be a contraction")
    rho = max(1 - size * mu, size * smooth - 1)
    variance, ratio = 2 * size * c["noise_ratio"], _row_ratio(c, row, size)
    push = ratio * math.sqrt(variance) * (2 if pair == "replace_one" else 1)
    togo, spread, distance = c["num_steps"] - record["first"], 0.0, 0.0
    if togo < 1:
        raise ValueError("the bound starts after the last step")
    for _ in range(record["first"]):
        distance = min(rho * distance + push, c["diameter"])
    for _ in range(togo):
        distance, spread = rho * distance, rho * rho * spread + variance
    steps = _sampled(pair, rate, ratio / math.sqrt(record["share"]), togo * c["num_chains"])
    square = distance**2 / spread / (1 - record["share"]) * c["num_chains"]
    if square == 0:
        return steps
    return {"kind": "product", "parts": ({"kind": "gaussian", "m": math.sqrt(square)}, steps)}
