"""Once more against NumPyro, and none of it by the evaluator of programs: both sides compiled by XLA.

``agreement`` computes NumPyro's density and what was read by one evaluator of traced programs, whose mistakes
it would make on both sides. Here the functions that run are compared with NumPyro's own at two parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import jax
import numpy as np

from private_mcmc.errors import NotYetSupported
from private_mcmc.model.agreement import Potentials, Reading
from private_mcmc.model.ir.program import Program
from private_mcmc.model.row_sum import synthetic_rows
from private_mcmc.records import RUN_ONCE

_ROWS, _TOLERANCE = 3, 1e-6
# Longer programs take seconds to compile, and are made of the same primitives.
_LONGEST = 1500
# As in `agreement`: of what float32 gives for NumPyro's own values.
_ILL_CONDITIONED, _FLOAT32_IS_WORSE = 1e-2, 4.0


def refuse_miscompiled(program: Program, reading: Reading, own: Potentials) -> None:
    """Compare the potentials of ``reading`` with NumPyro's ``own``, once for a program that is not very long.

    It is the evaluator that may be mistaken, of all models that are the same program.

    Raises:
        NotYetSupported: where they differ by more than a constant of the row, or one of the prior.
    """
    known = _known(program.text([*program.outputs.values()]))
    if known["checked"] or len(program.equations) > _LONGEST:
        return
    several = synthetic_rows(reading.rows, _ROWS)
    turns = np.outer([0.0, 0.4], np.cos(np.arange(1.0, reading.model_sites.dim + 1)))

    def at(theta: jax.Array, row: dict[str, jax.Array]) -> tuple[jax.Array, ...]:
        return (*own(theta, row), reading.row_loss(theta, row), reading.neg_log_prior(theta))

    *theirs, loss, prior = _computed(at, turns, several)
    blur = np.zeros((2, *loss.shape))
    if _differ(theirs, (loss, prior), blur):
        # NumPyro's own may clamp or cancel there: then float32 gives another number.
        with jax.enable_x64(False):
            rough = _computed(lambda theta, row: own(theta, row), turns, several)
        blur = np.abs(np.asarray(theirs) - np.asarray(rough))
    if what := _differ(theirs, (loss, prior), blur):
        raise NotYetSupported(
            f"the {what} that was read differs from NumPyro's own log density when both are compiled (at "
            "synthetic rows and parameters): write the distribution in its plain form, and please report "
            "this model."
        )
    known["checked"] = True


@lru_cache(maxsize=256)
def _known(text: str) -> dict[str, bool]:
    """What is remembered of a program."""
    return {"checked": False}


def _computed(
    function: Callable[..., tuple[jax.Array, ...]], thetas: np.ndarray, rows: dict[str, np.ndarray]
) -> list[np.ndarray]:
    """The function's values, ``(parameters, rows)``."""
    over_rows: Callable[..., tuple[jax.Array, ...]] = jax.vmap(function, in_axes=(None, 0))
    both = jax.jit(jax.vmap(over_rows, in_axes=(0, None)), compiler_options=RUN_ONCE)
    return [np.asarray(each, np.float64) for each in both(thetas, rows)]


def _differ(theirs: Sequence[np.ndarray], ours: Sequence[np.ndarray], blur: np.ndarray) -> str:
    """What differs by more than one number between two parameters, where both are known."""
    for what, one, other, off in zip(("likelihood", "prior"), theirs, ours, blur, strict=True):
        with np.errstate(invalid="ignore"):
            gaps = np.abs(np.diff(one - other, axis=0)[0])
            sizes = 1 + np.abs(one).sum(axis=0) + np.abs(other).sum(axis=0)
            known = np.all(off <= _ILL_CONDITIONED * (1 + np.abs(one)), axis=0) & np.isfinite(gaps)
        if np.any(known & (gaps > _TOLERANCE * sizes + _FLOAT32_IS_WORSE * off.sum(axis=0))):
            return what
    return ""
