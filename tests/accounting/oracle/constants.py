"""What the constants of a run say: plain formulas, no code of the accountant."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.linalg import eigh

from private_mcmc.records import Constants

Parts = Sequence[Constants]

_MOST_STEPS = 2 * 10**7


def check_together(c: Constants) -> None:
    """Refuse constants that are each fine and cannot be those of one run."""
    steps = c["num_steps"]
    if isinstance(c["step_size"], tuple) and len(c["step_size"]) != steps:
        raise ValueError("every step has a size")
    release = c["release"]["first"] if isinstance(c["release"], dict) else c["release"]
    last = release[-1] if isinstance(release, tuple) else release if isinstance(release, int) else 1
    if last > steps:
        raise ValueError("only steps of the run are released")
    if not c["strong_convexity"] <= c["smoothness"]:
        raise ValueError("strong convexity is at most the smoothness")


def two_rows(adjacency: str) -> int:
    """How often one row counts in the difference of two sums."""
    return 2 if adjacency == "replace_one" else 1


def square(matrix: Any, dim: int) -> Any:
    """A diagonal, or the rows of a symmetric matrix, as a matrix; the identity for nothing."""
    found = np.eye(dim) if matrix is None else np.asarray(matrix, dtype=np.float64)
    found = np.diag(found) if found.ndim == 1 else found
    if found.shape != (dim, dim) or not np.array_equal(found, found.T):
        raise ValueError("a symmetric matrix of the dimension")
    return found


def condition_number(c: Constants) -> float:
    """Largest over smallest eigenvalue of the preconditioner."""
    if c.get("preconditioner") is None:
        return 1.0
    values = np.linalg.eigvalsh(square(c["preconditioner"], c["dim"]))
    return float(values[-1] / values[0])


def noise_ratio(c: Constants, largest: bool = False) -> float:
    """The least ``vᵀNv/vᵀMv``, or the ``largest``, ``N`` the noise over ``2γ``, ``M`` the preconditioner."""
    if c.get("noise") is None:
        return 1.0
    pair = (square(c.get(name), c["dim"]) for name in ("noise", "preconditioner"))
    return float(eigh(*pair, eigvals_only=True)[-largest])


def exact_row(c: Constants) -> float:
    """``wC`` times the public factor of a batch: what one row adds to a gradient."""
    return float(c["temper"] * c["clip"] / c.get("rate", 1))


def rounding(c: Constants) -> float:
    """``2wC·n_s·√cond(M)·n_s k u/(1 − n_s k u)``: what float64 adds to the difference of two sums.

    ``k`` is the number of rows of a person.
    """
    count = c["num_rows"]
    load = count * c.get("rows_of_unit", 1) * 2.0**-53
    if not load < 0.5:
        raise ValueError("float64 sums of so many rows carry no useful bound")
    return float(2 * exact_row(c) * count * math.sqrt(condition_number(c)) * load / (1 - load))


def changes(adjacency: str, c: Constants) -> tuple[float, float]:
    """Largest change of a step's gradient between adjacent data, and that of one present row."""
    return two_rows(adjacency) * exact_row(c) + rounding(c), exact_row(c) + rounding(c)


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
