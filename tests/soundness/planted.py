"""Faults planted in the code that a driver really runs; each is undone when its block ends."""

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from private_mcmc import accounting
from private_mcmc.accounting import mechanisms, steps
from private_mcmc.domains import persons as placing
from private_mcmc.domains.persons import OWN_ROWS
from private_mcmc.inference import execute_plan
from private_mcmc.kernels import batches, chain, gradient
from private_mcmc.kernels import step as langevin
from private_mcmc.potential.families import TABLE
from private_mcmc.potential.prior import PriorConstants
from private_mcmc.release.noise import StateGrid
from tests.auditing.mutants import Change, patches
from tests.auditing.release_mutants import Swap

# What is changed (an object's attribute or a dictionary's entry), its name, and what it becomes.
Patch = tuple[Any, Any, Any]


@dataclass(frozen=True)
class Fault:
    """A fault, in words, and what plants it; ``patches`` are made when it is planted."""

    name: str
    patches: Callable[[], tuple[Patch, ...]]


@contextlib.contextmanager
def planted(fault: Fault) -> Iterator[None]:
    """The library with ``fault``."""
    found = fault.patches()
    before = [(o, k, o[k] if isinstance(o, dict) else getattr(o, k)) for o, k, _ in found]
    try:
        _set(found)
        yield
    finally:
        _set(before)


def _set(values: Any) -> None:
    for owner, key, value in values:
        if isinstance(owner, dict):
            owner[key] = value
        else:
            setattr(owner, key, value)


def _changed(*change: Any) -> Callable[[], tuple[Patch, ...]]:
    return lambda: patches(Change(*change))


_GAP, _IN_METRIC = steps.Curvature.gap, PriorConstants.in_metric
_LOGITS = "BernoulliLogits", "logits"
_LINE = TABLE[_LOGITS]["identity"]


def _root_of_the_precision(prior: PriorConstants, *args: Any) -> tuple[float, float]:
    least, largest = _IN_METRIC(prior, *args)
    return math.sqrt(least), max(largest, math.sqrt(least))


# As if the logits were squashed once more; the constants are those of the family as it should be.
_SQUASHED = {"identity": replace(_LINE, loss=lambda eta, y, given: _LINE.loss(jnp.tanh(eta), y, given))}


def _stage_not_charged() -> tuple[Patch, ...]:
    old, new = "spent += Fraction(stage.gdp) ** 2", "spent = Fraction(stage.gdp) ** 2"
    swap = Swap(mechanisms, "adaptive", old, new)
    return tuple((owner, "adaptive", swap.mutant) for owner in (accounting, mechanisms))


def _stage_keys_reused() -> tuple[Patch, ...]:
    old, new = "streams.of_stage(len(history))", "streams.of_stage(0)"
    swap = Swap(execute_plan.PlannedRun, "_run", old, new)
    return ((execute_plan.PlannedRun, "_run", swap.mutant),)


_GROUPED = placing.grouped


def _rank(codes: np.ndarray) -> np.ndarray:
    """How many rows of the same person stand before each row in the file."""
    order = np.argsort(codes, kind="stable")
    rank = np.empty(len(codes), np.int64)
    rank[order] = np.arange(len(codes)) - np.searchsorted(codes[order], codes[order])
    return rank


def _split_at_the_cap(columns: Any, codes: np.ndarray, persons: int, at_most: int) -> Any:
    """Rows beyond the cap become another person, in the slots that follow, whose own rows are lost."""
    block = _rank(codes) // at_most
    beyond, moved = block > 0, (codes + block) % persons
    lost = ~beyond & np.isin(codes, moved[beyond])
    return _GROUPED(columns, np.where(lost, -1, moved), persons, at_most)


def _capped_in_all(columns: Any, codes: np.ndarray, persons: int, at_most: int) -> Any:
    """The first rows of the file are kept, as many as there is room for."""
    return _GROUPED(columns, np.where(np.arange(len(codes)) < persons * at_most, codes, -1), persons, at_most)


def _batches_of_rows(gradient: Any, schedule: Any) -> Any:
    def total(u: jax.Array, rows: Any, draw: Any, first: Any) -> jax.Array:
        own = rows.columns[OWN_ROWS]
        kept = own & (jax.random.uniform(draw.key, own.shape) < schedule.rate)
        return gradient.total(u, rows._replace(columns={**rows.columns, OWN_ROWS: kept})) / schedule.rate

    return batches.BatchSum(total)


UNBROKEN = Fault("nothing", tuple)

FAULTS = (
    Fault(
        "first row never clipped",
        _changed(gradient, "rows.present, rows.cap, 0.0", "rows.present, rows.cap.at[0].set(jnp.inf), 0.0"),
    ),
    Fault(
        "coordinates clipped by the norm of their box",
        _changed(
            gradient,
            "jnp.clip(gradients, -caps, caps)",
            "gradients * jnp.minimum("
            "1.0, jnp.linalg.norm(caps) / jnp.linalg.norm(gradients, axis=-1))[:, None]",
        ),
    ),
    Fault(
        "last coordinate never clipped",
        _changed(gradient, "jnp.asarray(clips) * _INSIDE)", "jnp.asarray(clips).at[-1].set(jnp.inf))"),
    ),
    Fault(
        "batch redrawn every fourth step",
        _changed(batches, "fold_in(self.stream, self.k)", "fold_in(self.stream, self.k // 4)"),
    ),
    Fault(
        "noise used for two steps",
        _changed(langevin, "jax.random.fold_in(key, k), (", "jax.random.fold_in(key, k // 2), ("),
    ),
    Fault("keys of a plan's stages used again", _stage_keys_reused),
    Fault(
        "noise used again after resuming",
        _changed(chain, "self.advance(u, first, count", "self.advance(u, first - state.done, count"),
    ),
    Fault("only the last stage charged", _stage_not_charged),
    Fault(
        "family: a prior's curvature 1/s for 1/s²",
        lambda: ((PriorConstants, "in_metric", _root_of_the_precision),),
    ),
    Fault("family: logits squashed once more", lambda: ((TABLE, _LOGITS, _SQUASHED),)),
    Fault("modulus: twice the contraction", lambda: ((steps.Curvature, "gap", lambda *a: 2 * _GAP(*a)),)),
    Fault(
        "person: a quarter of the norm clipped",
        _changed(gradient, *(f"norm = jnp.linalg.norm(gradients, axis=-1){part}" for part in ("", " / 4"))),
    ),
    Fault(
        "person: a sum with other persons' rows",
        _changed(gradient, "of_block(gradients,", "of_block(gradients + jnp.roll(gradients, 1, axis=0),"),
    ),
    Fault("person: rows beyond the cap kept", lambda: ((placing, "grouped", _split_at_the_cap),)),
    Fault("person: cap by global order", lambda: ((placing, "grouped", _capped_in_all),)),
    Fault("person: batches by rows", lambda: ((langevin, "batch_sum", _batches_of_rows),)),
    Fault("rounding skipped", lambda: ((StateGrid, "round", lambda self, states: np.asarray(states)),)),
)
