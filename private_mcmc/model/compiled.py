"""NumPyro's density once by XLA and once by the evaluator of programs, which are to agree.

``agreement`` takes NumPyro's density and what was read through one evaluator of traced programs, whose
mistakes it would make on both sides. XLA shares nothing with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import jax
import numpy as np

from private_mcmc.domains.rows import Rows
from private_mcmc.errors import NotYetSupported
from private_mcmc.model.agreement import Potentials
from private_mcmc.model.ir.evaluate import evaluate
from private_mcmc.model.ir.flatten import abstract, trace
from private_mcmc.model.ir.program import Program
from private_mcmc.model.predictor import Row
from private_mcmc.model.row_sum import synthetic_rows
from private_mcmc.records import RUN_ONCE

_ROWS, _TOLERANCE, _FLOAT32_IS_WORSE = 3, 1e-6, 4.0
# Longer programs (unrolled loops) take seconds to compile, and are made of the same primitives.
_LONGEST = 1500


def refuse_misevaluated(program: Program, rows: Rows, dim: int, own: Potentials) -> None:
    """Compare ``own``, NumPyro's potentials, as compiled and as evaluated; once for a ``program``.

    Raises:
        NotYetSupported: where they differ.
    """
    known = _known(program.text([*program.outputs.values()]))
    if known["checked"] or len(program.equations) > _LONGEST:
        return
    columns = synthetic_rows(rows, _ROWS)
    each = [{name: column[i] for name, column in columns.items()} for i in range(_ROWS)]
    thetas = np.outer([0.0, 0.4], np.cos(np.arange(1.0, dim + 1)))
    points = [(theta, row) for theta in thetas for row in each]
    by_xla = _by_xla(own, points)

    def named(theta: jax.Array, **row: jax.Array) -> dict[str, jax.Array]:
        return dict(zip(("likelihood", "prior"), own(theta, row), strict=True))

    shapes = {name: abstract(column.shape[1:], column.dtype) for name, column in columns.items()}
    traced = trace(named, theta=abstract((dim,), np.float64), **shapes)
    names = [*traced.outputs]
    ours = np.array([evaluate(traced, names, theta=theta, **row) for theta, row in points], np.float64)
    slack = _TOLERANCE * (1 + np.abs(by_xla))
    if not _agree(by_xla, ours, slack):
        # NumPyro's own may clamp or cancel there: then float32 gives another number.
        with jax.enable_x64(False):
            slack = slack + _FLOAT32_IS_WORSE * np.abs(by_xla - _by_xla(own, points))
        if not _agree(by_xla, ours, slack):
            raise NotYetSupported(
                "NumPyro's own log density of this model is another number when XLA compiles it than by the "
                "evaluator that its proofs are checked with (at synthetic rows and parameters): write the "
                "distributions in their plain form, and please report this model."
            )
    known["checked"] = True


@lru_cache(maxsize=256)
def _known(text: str) -> dict[str, bool]:
    """What is remembered of a program."""
    return {"checked": False}


def _by_xla(own: Potentials, points: Sequence[tuple[np.ndarray, Row]]) -> np.ndarray:
    """``(points, 2)``: likelihoods and priors."""
    compiled = jax.jit(own, compiler_options=RUN_ONCE)
    return np.array([compiled(theta, row) for theta, row in points], np.float64)


def _agree(one: np.ndarray, other: np.ndarray, slack: np.ndarray) -> bool:
    """Whether numbers are the same up to ``slack`` where they are finite, and infinite or none together."""
    with np.errstate(invalid="ignore"):
        close = np.abs(one - other) <= slack
    same = (one == other) | (np.isnan(one) & np.isnan(other))
    unknown = ~np.isfinite(slack)
    return bool(np.all(close | same | unknown))
