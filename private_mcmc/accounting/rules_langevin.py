"""Recomputation of Langevin statements from their constants: plain recursions, no shared formulas."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

Record = dict[str, Any]
Constants = Mapping[str, Any]
Line = tuple[float, float]

_SLACK = 1e-9
_MOST_STEPS = 2 * 10**7


def langevin(adjacency: str, c: Constants, parts: Sequence[Mapping[str, Any]]) -> list[Record]:
    """Every curve that the recorded bounds justify."""
    _check_together(c)
    change, row = _changes(adjacency, c)
    if not math.isclose(_two_rows(adjacency) * _exact_row(c) + _rounding(c), c["sensitivity"], rel_tol=1e-12):
        return []
    return [_curve(adjacency, c, change, row, record) for record in c["bounds"]]


def _check_together(c: Constants) -> None:
    """Refuse constants that are each fine and cannot be those of one run."""
    steps, rows, batch = c["num_steps"], c["num_rows"], c["batch"]
    if isinstance(c["step_size"], tuple) and len(c["step_size"]) != steps:
        raise ValueError("every step has a size")
    if isinstance(c["release"], tuple) and c["release"][-1] > steps:
        raise ValueError("only steps of the run are released")
    for low, high, convex in (
        (c["strong_convexity"], c["smoothness"], c["convex"]),
        (c["prior_strong_convexity"], c["prior_smoothness"], c.get("prior_convex", True)),
    ):
        if not low <= high or (low > 0 and not convex):
            raise ValueError("strong convexity means convex, and is at most the smoothness")
    if batch is not None:
        scheme, rate, size = batch["scheme"], batch["rate"], batch["size"]
        has_rate, has_size = scheme in ("poisson", "truncated_poisson"), scheme != "poisson"
        if (rate is not None, size is not None) != (has_rate, has_size) or rate == 0:
            raise ValueError("a batch has the rate and the size that its scheme needs")
        if has_size and (size > rows or (scheme == "cyclic" and rows % size)):
            raise ValueError("batches have at most all rows, and a pass is whole batches")


def _curve(adjacency: str, c: Constants, change: float, row: float, record: Mapping[str, Any]) -> Record:
    kind = record["kind"]
    if kind == "path":
        return _gaussian(c["num_chains"] * _path_square(c, change))
    if kind == "stretches":
        return _gaussian(c["num_chains"] * _stretches_square(c, change, record["stretches"]))
    if kind == "sampled path":
        return _sampled_path(adjacency, c, row, record)
    if kind == "truncated path":
        return _truncated_path(c, row, record)
    if kind == "sampled last":
        return _sampled_last(adjacency, c, row, record)
    raise ValueError(f"unknown bound {kind!r}")


def _gaussian(square: float) -> Record:
    return {"kind": "gaussian", "m": math.sqrt(square) * (1 + _SLACK)}


def _two_rows(adjacency: str) -> int:
    return 2 if adjacency == "replace_one" else 1


def _factor(c: Constants) -> float:
    batch = c["batch"]
    if batch is None:
        return 1.0
    return float(c["num_rows"] / batch["size"] if batch["rate"] is None else 1 / batch["rate"])


def _summed(c: Constants) -> int:
    batch = c["batch"]
    sizes = [c["num_rows"]]
    if batch is not None and batch["size"] is not None:
        sizes.append(batch["size"])
    return int(min(sizes))


def _exact_row(c: Constants) -> float:
    return float(c["temper"] * c["clip"] * _factor(c))


def _rounding(c: Constants) -> float:
    count, unit = _summed(c), 2.0**-53
    if not count * unit < 0.5:
        raise ValueError("float64 sums of so many rows carry no useful bound")
    return 2 * _exact_row(c) * count * math.sqrt(c["condition_number"]) * count * unit / (1 - count * unit)


def _changes(adjacency: str, c: Constants) -> tuple[float, float]:
    """Largest change of a step's gradient between adjacent data, and that of one present row."""
    scheme = None if c["batch"] is None else c["batch"]["scheme"]
    if scheme in ("fixed", "cyclic") and adjacency == "add_remove":
        raise ValueError("refused: the slot of a removed row is refilled")
    if scheme == "truncated_poisson" and adjacency != "add_remove":
        raise ValueError("refused: truncated Poisson batches are certified under add_remove only")
    change = _two_rows(adjacency) * _exact_row(c) + _rounding(c)
    return change * (2 if scheme == "truncated_poisson" else 1), _exact_row(c) + _rounding(c)


def _sizes(c: Constants) -> tuple[float, ...]:
    given = c["step_size"]
    if not c["num_steps"] <= _MOST_STEPS:
        raise ValueError("more steps than are recomputed one by one")
    return given if isinstance(given, tuple) else (given,) * c["num_steps"]


def _used_sizes(c: Constants) -> Counter[float]:
    """How often each step size occurs up to the last released step."""
    last = _ends(c)[-1]
    return (
        Counter(c["step_size"][:last])
        if isinstance(c["step_size"], tuple)
        else Counter({c["step_size"]: last})
    )


def _ends(c: Constants) -> tuple[int, ...]:
    release = c["release"]
    if isinstance(release, tuple):
        return release
    if release not in ("last", "path"):
        raise ValueError(f"release {release!r} is not a release of states")
    return (c["num_steps"],)


def _passes(c: Constants) -> int:
    batch = c["batch"]
    return int(c["num_rows"] // batch["size"]) if batch is not None and batch["scheme"] == "cyclic" else 1


def _path_square(c: Constants, change: float) -> float:
    passes = _passes(c)
    if passes == 1:
        squares = (
            (size * change) ** 2 / (2 * size * c["noise_ratio"]) * n for size, n in _used_sizes(c).items()
        )
        return math.fsum(squares)
    totals = [0.0] * passes
    for step, size in enumerate(_sizes(c)[: _ends(c)[-1]]):
        totals[step % passes] += (size * change) ** 2 / (2 * size * c["noise_ratio"])
    return max(totals)


def _lines(size: float, c: Constants, change: float) -> list[Line]:
    """``(ρ, s)`` of every line ``ρz + s`` that the constants put above the cross modulus.

    ``x − γ∇F(x)`` is ``ρ``-Lipschitz with ``ρ = sup |1 − γh|`` over the eigenvalues ``h`` that the Hessian of
    ``F`` may have. ``Φ_D(x) − Φ_{D'}(y)`` is that of ``F = U_D`` and a change of data at one point, or that
    of ``F = K`` and two data gradients of norm at most ``B``.
    """
    whole = _eigenvalues(c["strong_convexity"], c["smoothness"], c["convex"] is True)
    # Records older than the field say that K is convex by its strong convexity only.
    prior_convex = c.get("prior_convex") is True
    prior = _eigenvalues(c["prior_strong_convexity"], c["prior_smoothness"], prior_convex)
    bound = min(c["gradient_bound"], _exact_row(c) * (1 + 1e-10) * _summed(c)) + _rounding(c) / 2
    found = [(whole, size * change), (prior, 2 * size * bound)]
    return [
        (max(abs(1 - size * low), abs(1 - size * high)), shift)
        for (low, high), shift in found
        if high < math.inf and shift < math.inf
    ]


def _eigenvalues(strong_convexity: float, smoothness: float, convex: bool) -> tuple[float, float]:
    """The interval of a Hessian's eigenvalues: from ``−L`` where nothing says that the function is convex."""
    if not 0 <= strong_convexity <= smoothness:
        raise ValueError("need 0 ≤ μ ≤ L")
    return (strong_convexity if convex or strong_convexity > 0 else -smoothness), smoothness


def _stretches_square(c: Constants, change: float, stretches: Sequence[Mapping[str, Any]]) -> float:
    if c["release"] == "path":
        raise ValueError("the path has no hidden states")
    if tuple(accumulate(stretch["steps"] for stretch in stretches)) != _ends(c):
        raise ValueError("the stretches do not end at the released steps")
    sizes, total, begin = _sizes(c), 0.0, 0
    known: dict[Any, float] = {}
    for stretch in stretches:
        end = begin + stretch["steps"]
        key = (
            sizes[begin:end],
            tuple(sorted((k, v) for k, v in stretch.items() if k != "shifts")),
            stretch["shifts"],
        )
        if key not in known:
            known[key] = _stretch_square(c, change, sizes[begin:end], stretch)
        total += known[key]
        begin = end
    return total


def _stretch_square(c: Constants, change: float, sizes: Sequence[float], stretch: Mapping[str, Any]) -> float:
    steps, passes = len(sizes), _passes(c)
    table = {(size, on): _lines(size, c, change * on) for size in set(sizes) for on in (0, 1)}
    on = [int(stretch["used"] == "every step" or (steps - 1 - k) % passes == 0) for k in range(steps)]
    if stretch["used"] != "every step" and (passes == 1 or len(set(sizes)) > 1):
        raise ValueError("the row is used in every step")
    variances = [2 * size * c["noise_ratio"] for size in sizes]
    first = stretch["first"]
    if not first < steps:
        raise ValueError("the bound starts after the last step")
    if stretch["from_diameter"] and not c["diameter"] < math.inf:
        raise ValueError("there is no projection")
    start = c["diameter"] if stretch["from_diameter"] else 0.0
    maps = [table[size, used] for size, used in zip(sizes, on, strict=True)][first:]
    resting = [size * change * used for size, used in zip(sizes, on, strict=True)][first:]
    given = stretch["shifts"]
    if given is not None:
        if first > 0 and not stretch["from_diameter"]:
            start = given[0]
            if any(_reach(lines, math.inf, start) > start * (1 + 1e-12) for lines in table.values()):
                raise ValueError("the chains may be further apart than the first shift says")
        return _certified(maps, resting, variances[first:], given, start)
    if first > 0 and not stretch["from_diameter"]:
        raise ValueError("only the diameter bounds the distance of hidden states here")
    candidates = [_certified(maps, resting, variances[first:], _path_shifts(len(maps), start), start)]
    idle = next((k for k, rest in enumerate(resting) if rest > 0 or start > 0), len(maps))
    for index in range(min((len(lines) for lines in maps), default=0)):
        line = [lines[index] for lines in maps]
        for split in (len(line), len(line) - 1):
            moving = _straight(line[idle:split], variances[first + idle :], start)
            z = [0.0] * idle + moving + [0.0] * (len(line) - split)
            candidates.append(_certified([[item] for item in line], resting, variances[first:], z, start))
    return min(candidates)


def _path_shifts(steps: int, start: float) -> list[float]:
    return [start] + [0.0] * steps


def _reach(lines: Sequence[Line], resting: float, distance: float) -> float:
    lowest = min((rho * distance + shift for rho, shift in lines), default=math.inf)
    return min(lowest, resting) if distance == 0 else lowest


def _certified(
    maps: Sequence[Sequence[Line]],
    resting: Sequence[float],
    variances: Sequence[float],
    z: Sequence[float],
    start: float,
) -> float:
    """``Σ (φ_k(z_{k−1}) − z_k)²/σ_k²`` of feasible shifts; ``inf`` for shifts that are not."""
    total, slack = 0.0, 1e-12
    if len(z) != len(maps) + 1 or z[0] < start or z[-1] != 0:
        return math.inf
    for lines, rest, variance, before, after in zip(maps, resting, variances, z, z[1:], strict=False):
        reach = _reach(lines, rest, before)
        if not (after >= 0 and reach * (1 + slack) >= after):
            return math.inf
        total += max(reach - after, 0.0) ** 2 / variance
    return total


def _straight(line: Sequence[Line], variances: Sequence[float], start: float) -> list[float]:
    """Shifts of the linear chain ``e ← ρe + s`` whose remainder is removed as its own variance grows.

    The best linear prediction: ``z_k = e_k − v_k Π_{j>k}ρ_j · e_T/v_T`` with ``e``, ``v`` the mean and
    the variance of the chain, which is the exact Gaussian case.
    """
    means, spreads = [start], [0.0]
    for (rho, shift), variance in zip(line, variances, strict=False):
        means.append(rho * means[-1] + shift)
        spreads.append(rho * rho * spreads[-1] + variance)
    if not (line and math.isfinite(means[-1]) and math.isfinite(spreads[-1])):
        return [start]
    pull, later = means[-1] / spreads[-1], 1.0
    z = [0.0] * len(means)
    for k in range(len(line) - 1, -1, -1):
        later *= line[k][0]
        gone = means[k] - spreads[k] * later * pull
        # Rounding, or a stretch at the start in which nothing has happened yet.
        z[k] = gone if gone > 1e-12 * means[k] else 0.0
    z[0] = start
    return z


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


def _sampled_path(adjacency: str, c: Constants, row: float, record: Mapping[str, Any]) -> Record:
    pair, rate = _pair(adjacency, c)
    if record["pair"] != pair:
        raise ValueError("the pair is not that of these batches")
    charged = _charged(c, row, record)
    return _one([_sampled(pair, rate, ratio, count * c["num_chains"]) for ratio, count in charged])


def _truncated_path(c: Constants, row: float, record: Mapping[str, Any]) -> Record:
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
    for size, count in _used_sizes(c).items():
        needed[_row_ratio(c, row, size)] += count
    charged = list(record["steps"])
    if sum(count for _, count in charged) != needed.total():
        raise ValueError("the charged steps are not all steps")
    for ratio in needed:
        most = sum(count for other, count in needed.items() if other >= ratio)
        if sum(count for other, count in charged if other >= ratio * (1 - 1e-12)) < most:
            raise ValueError("some steps are charged below their ratio")
    return charged


def _sampled_last(adjacency: str, c: Constants, row: float, record: Mapping[str, Any]) -> Record:
    pair, rate = _pair(adjacency, c)
    size = _sizes(c)[0]
    if pair == "fixed" or c["release"] != "last" or len(set(_sizes(c))) > 1 or not 0 < record["share"] < 1:
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
