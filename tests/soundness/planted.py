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
from private_mcmc.accounting.langevin import steps as moduli
from private_mcmc.domains.numeric import PRESENT, holds_person
from private_mcmc.inference import execute, execute_plan
from private_mcmc.kernels import chain
from private_mcmc.kernels import step as langevin
from private_mcmc.kernels.gradient import affine as gradient_affine
from private_mcmc.kernels.gradient import clipped as gradient
from private_mcmc.kernels.randomness import batches
from private_mcmc.kernels.randomness.draws import PredrawnNoise
from private_mcmc.model.likelihoods import terms as site_terms
from private_mcmc.model.priors.prior import PriorConstants
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


def _changed(*changes: Change) -> Callable[[], tuple[Patch, ...]]:
    return lambda: patches(*changes)


def _noise_for_two_steps(chains: int, dim: int) -> PredrawnNoise:
    def draw(key: jax.Array) -> jax.Array:
        return jnp.repeat(jax.random.normal(key, (2, chains, dim)), 2, axis=0)

    return PredrawnNoise(draw, 4, outside=math.nan)


def _packed(rows: Any, columns: Any, *rest: Any) -> Any:
    if PRESENT in columns:
        order = np.argsort(~holds_person(columns[PRESENT]), kind="stable")
        columns = {name: np.asarray(column)[order] for name, column in columns.items()}
    return _ON_DEVICE(rows, columns, *rest)


_ON_DEVICE = execute.on_device
_GAP, _IN_METRIC = moduli.contraction_gap, PriorConstants.in_metric
_LOGITS = "BernoulliLogits", "logits"
_ENTRY = site_terms.FAMILIES[_LOGITS]


def _root_of_the_precision(prior: PriorConstants, *args: Any) -> tuple[float, float]:
    least, largest = _IN_METRIC(prior, *args)
    return math.sqrt(least), max(largest, math.sqrt(least))


def _logits_squashed(*args: Any) -> Any:
    """As if the logits were squashed once more; the constants are those of the family as it should be."""
    found = _ENTRY.rule(*args)
    return found and replace(found, loss=lambda eta, y, given: found.loss(jnp.tanh(eta), y, given))


def _stage_not_charged() -> tuple[Patch, ...]:
    swap = Swap(
        accounting, "adaptive", "spent += Fraction(stage.gdp) ** 2", "spent = Fraction(stage.gdp) ** 2"
    )
    return ((accounting, "adaptive", swap.mutant),)


def _stage_keys_reused() -> tuple[Patch, ...]:
    old, new = "jax.random.fold_in(paths, len(history))", "jax.random.fold_in(paths, 0)"
    swap = Swap(execute_plan.PlannedRun, "_run", old, new)
    return ((execute_plan.PlannedRun, "_run", swap.mutant),)


UNBROKEN = Fault("nothing", tuple)

FAULTS = (
    Fault(
        "first row never clipped",
        _changed(
            Change(gradient_affine, "held(slope, part.cap)", "held(slope, part.cap.at[..., 0].set(jnp.inf))")
        ),
    ),
    Fault(
        "coordinates clipped by the norm of their box",
        _changed(
            Change(
                gradient,
                "jnp.clip(gradients, -caps, caps)",
                "gradients * weight("
                "jnp.linalg.norm(gradients, axis=-1), jnp.linalg.norm(caps), usable)[:, None]",
            )
        ),
    ),
    Fault(
        "last coordinate never clipped",
        _changed(
            Change(gradient, "jnp.asarray(clips) * _INSIDE)", "jnp.asarray(clips).at[-1].set(jnp.inf))")
        ),
    ),
    Fault(
        "batch redrawn every fourth step",
        _changed(Change(batches, "fold_in(self.stream, self.k)", "fold_in(self.stream, self.k // 4)")),
    ),
    Fault("noise used for two steps", lambda: ((langevin, "_noise", _noise_for_two_steps),)),
    Fault("rows packed into the first slots", lambda: ((execute, "on_device", _packed),)),
    Fault("keys of a plan's stages used again", _stage_keys_reused),
    Fault(
        "noise used again after resuming",
        _changed(
            Change(
                chain,
                "advance(u, segment.first, gaps, count, total)\n        if",
                "advance(u, segment.first - state.done, gaps, count, total)\n        if",
            )
        ),
    ),
    Fault("only the last stage charged", _stage_not_charged),
    Fault(
        "family: a prior's curvature 1/s for 1/s²",
        lambda: ((PriorConstants, "in_metric", _root_of_the_precision),),
    ),
    Fault(
        "family: logits squashed once more",
        lambda: ((site_terms.FAMILIES, _LOGITS, replace(_ENTRY, rule=_logits_squashed)),),
    ),
    Fault("modulus: twice the contraction", lambda: ((moduli, "contraction_gap", lambda *a: 2 * _GAP(*a)),)),
    Fault("rounding skipped", lambda: ((StateGrid, "round", lambda self, states: np.asarray(states)),)),
)
