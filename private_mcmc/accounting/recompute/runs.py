"""What the constants of a run say: its steps, what a row changes, which constants cannot be of one run."""

from __future__ import annotations

import math
from collections import Counter

from private_mcmc.records import Constants, Record

_MOST_STEPS = 2 * 10**7


def check_together(c: Constants) -> None:
    """Refuse constants that are each fine and cannot be those of one run."""
    steps, rows, batch = c["num_steps"], c["num_rows"], c["batch"]
    if isinstance(c["step_size"], tuple) and len(c["step_size"]) != steps:
        raise ValueError("every step has a size")
    release = c.get("release")
    if (isinstance(release, tuple) and release[-1] > steps) or c.get("first", 1) > steps:
        raise ValueError("only steps of the run are released")
    for low, high, convex in (
        (c["strong_convexity"], c["smoothness"], c["convex"]),
        (c["prior_strong_convexity"], c["prior_smoothness"], c.get("prior_convex", True)),
    ):
        if not low <= high or (low > 0 and not convex):
            raise ValueError("strong convexity means convex, and is at most the smoothness")
    if "rows_of_unit" in c and batch is not None and batch["scheme"] == "cyclic":
        raise ValueError("refused: identifiers tell which of cyclic batches a person is in")
    if batch is not None:
        scheme, rate, size = batch["scheme"], batch["rate"], batch["size"]
        has_rate, has_size = scheme in ("poisson", "truncated_poisson"), scheme != "poisson"
        if (rate is not None, size is not None) != (has_rate, has_size) or rate == 0:
            raise ValueError("a batch has the rate and the size that its scheme needs")
        if has_size and (size > rows or (scheme == "cyclic" and rows % size)):
            raise ValueError("batches have at most all rows, and a pass is whole batches")


def two_rows(adjacency: str) -> int:
    """How often one row counts in the difference of two sums."""
    return 2 if adjacency == "replace_one" else 1


def _factor(c: Constants) -> float:
    batch = c["batch"]
    if batch is None:
        return 1.0
    return float(c["num_rows"] / batch["size"] if batch["rate"] is None else 1 / batch["rate"])


def rows_summed(c: Constants) -> int:
    """The most rows in one sum."""
    batch = c["batch"]
    sizes = [c["num_rows"]]
    if batch is not None and batch["size"] is not None:
        sizes.append(batch["size"])
    return int(min(sizes))


def exact_row(c: Constants) -> float:
    """``wC`` times the public factor of a batch: what one row adds to a gradient."""
    return float(c["temper"] * c["clip"] * _factor(c))


def rounding(c: Constants) -> float:
    """``2wC·n_s·√cond(M)·n_s k u/(1 − n_s k u)``: what float64 adds to the difference of two sums.

    ``k`` is the number of rows of a person.
    """
    count = rows_summed(c)
    load = count * c.get("rows_of_unit", 1) * 2.0**-53
    if not load < 0.5:
        raise ValueError("float64 sums of so many rows carry no useful bound")
    return float(2 * exact_row(c) * count * math.sqrt(c["condition_number"]) * load / (1 - load))


def changes(adjacency: str, c: Constants) -> tuple[float, float]:
    """Largest change of a step's gradient between adjacent data, and that of one present row."""
    scheme = None if c["batch"] is None else c["batch"]["scheme"]
    if scheme in ("fixed", "cyclic") and adjacency == "add_remove":
        raise ValueError("refused: the slot of a removed row is refilled")
    if scheme == "truncated_poisson" and adjacency != "add_remove":
        raise ValueError("refused: truncated Poisson batches are certified under add_remove only")
    change = two_rows(adjacency) * exact_row(c) + rounding(c)
    return change * (2 if scheme == "truncated_poisson" else 1), exact_row(c) + rounding(c)


def step_sizes(c: Constants) -> tuple[float, ...]:
    """The size of every step."""
    given = c["step_size"]
    if not c["num_steps"] <= _MOST_STEPS:
        raise ValueError("more steps than are recomputed one by one")
    return given if isinstance(given, tuple) else (given,) * c["num_steps"]


def used_sizes(c: Constants) -> Counter[float]:
    """How often each step size occurs up to the last released step."""
    last = ends(c)[-1]
    return (
        Counter(c["step_size"][:last])
        if isinstance(c["step_size"], tuple)
        else Counter({c["step_size"]: last})
    )


def ends(c: Constants) -> tuple[int, ...]:
    """The released steps of which each needs a bound: of a path the last alone."""
    release = c["release"]
    if isinstance(release, tuple):
        return release
    if release not in ("last", "path"):
        raise ValueError(f"release {release!r} is not a release of states")
    return (c["num_steps"],)


def pass_length(c: Constants) -> int:
    """Steps between two uses of a row."""
    batch = c["batch"]
    return int(c["num_rows"] // batch["size"]) if batch is not None and batch["scheme"] == "cyclic" else 1


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


def sampled_path(adjacency: str, c: Constants, row: float, record: Constants) -> Record:
    """All states, the batches hidden: every step at least at its own ratio."""
    pair, rate = _pair(adjacency, c)
    if record["pair"] != pair:
        raise ValueError("the pair is not that of these batches")
    charged = _charged(c, row, record)
    return _one([_sampled(pair, rate, ratio, count * c["num_chains"]) for ratio, count in charged])


def truncated_path(c: Constants, row: float, record: Constants) -> Record:
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


def _charged(c: Constants, row: float, record: Constants) -> list[tuple[float, int]]:
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


def sampled_last(adjacency: str, c: Constants, row: float, record: Constants) -> Record:
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
