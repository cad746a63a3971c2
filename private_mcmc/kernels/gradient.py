"""The clipped gradient of the data term, ``Σ_i clip_C(Aᵀ∇v(θ, d_i))``, one row at most ``C``, by two routes.

Rows that enter through one affine predictor ``η_i = x_i·θ + o_i`` have gradients ``ψ'(η_i)·Aᵀx_i`` of norm
``|ψ'(η_i)|·‖Aᵀx_i‖``: clipping holds the slope ``ψ'`` between caps that are known before the run, and no
per-row gradient is formed. All others, persons among them, are clipped by their own gradients, formed in
blocks by ``vmap``.

The preconditioner is a change of variables: with ``M = AAᵀ`` and ``θ = Au`` a Langevin step is a plain one,
``u' = u − γ Aᵀ∇U(Au) + √(2γ) ξ``. Distances are ``‖u − u'‖ = ‖M^{-1/2}(θ − θ')‖`` and gradients
``‖Aᵀ∇v‖ = ‖M^{1/2}∇v‖``, the two norms of the accountant.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jaxtyping import Array, Bool, Float

from private_mcmc.accounting.steps import CLIP_SLACK, dense
from private_mcmc.errors import DeclarationError, ReleaseError
from private_mcmc.potential.potential import SHARE, Potential
from private_mcmc.potential.predictor import Predictor
from private_mcmc.potential.rowwise import first_of, mapped, rows_at_once, rowwise
from private_mcmc.schedule import Matrix, Schedule

Columns = Mapping[str, jax.Array]
# A pytree of arrays, of a kind that only the gradient that prepared it looks into.
PreparedRows = Any
# A number of the schedule; an array where a simulation compiles one step for many clips.
Clip = float | jax.Array
Gradients = Float[Array, "rows p"]
Flags = Bool[Array, " rows"]
Vector = Float[Array, " p"]

# Squares of smaller entries underflow: added to a norm, this keeps it an upper bound of the true one.
UNDERFLOW = 1e-140


@dataclass(frozen=True, eq=False)
class Whitening:
    """``A`` with ``AAᵀ = M``: ``None`` (identity), a vector (diagonal) or a lower triangular matrix."""

    root: npt.NDArray[np.float64] | jax.Array | None

    def to_parameter(self, u: Float[Array, "*batch p"]) -> Float[Array, "*batch p"]:
        """``θ = Au``."""
        if self.root is None:
            return u
        root = jnp.asarray(self.root)
        return u * root if root.ndim == 1 else u @ root.T

    def from_parameter(self, theta: Float[Array, "*batch p"]) -> Float[Array, "*batch p"]:
        """``u = A^{-1}θ``."""
        if self.root is None:
            return theta
        if self.root.ndim == 1:
            return theta / self.root
        inverse: jax.Array = jnp.linalg.inv(jnp.asarray(self.root))
        return theta @ inverse.T

    def pull_back(self, gradient: Float[Array, "*batch p"]) -> Float[Array, "*batch p"]:
        """``Aᵀg``, the gradient with respect to ``u``."""
        if self.root is None:
            return gradient
        root = jnp.asarray(self.root)
        return gradient * root if root.ndim == 1 else gradient @ root


def whitening(preconditioner: Matrix | None, dim: int) -> Whitening:
    """Factor the schedule's ``M``: ``None``, diagonal or full, positive definite."""
    if preconditioner is None:
        return Whitening(None)
    dense(preconditioner, dim, "preconditioner")  # refused unless it is one
    matrix = np.asarray(preconditioner, dtype=np.float64)
    if matrix.ndim == 1:
        return Whitening(np.sqrt(matrix))
    try:
        return Whitening(np.asarray(np.linalg.cholesky(matrix), dtype=np.float64))
    except np.linalg.LinAlgError as error:
        raise DeclarationError("preconditioner: the matrix must be positive definite.") from error


@dataclass(frozen=True, eq=False)
class ClippedGradient:
    """``prepare(columns, present)`` once a run, then ``total(u, prepared)`` at every step.

    **Guarantee**: for every ``u`` (NaN included) and every row, present or not, that row's term in
    ``total`` has Euclidean norm at most ``C`` in the whitened coordinates, i.e. dual norm at most ``C``;
    at most ``C(1 + CLIP_SLACK)`` where rows do not enter through one predictor, which every price includes.
    A row that is not present contributes exactly zero.
    """

    prepare: Callable[[Columns, jax.Array], PreparedRows]
    total: Callable[[jax.Array, PreparedRows], jax.Array]


def inside(clip: Clip, entries: int) -> Clip:
    """The clip, less the rounding of a norm of ``entries`` squares and of the products after it.

    A computed sum of ``m`` squares is off by at most ``m u/(1 − m u)`` of itself, ``u = 2⁻⁵³``, in any order
    (Higham 2002, §4.2), its root by half of that; a few more roundings scale the row.
    """
    return clip * (1.0 - max(2.0**-40, (entries + 64) * 2.0**-53))


def held(value: jax.Array, cap: jax.Array | float) -> jax.Array:
    """``value`` clipped to ``[−cap, cap]``, elementwise; what is not a number becomes ``cap``."""
    return jnp.where(value < cap, jnp.where(value > -cap, value, -cap), cap)


def clipped_sum(gradients: Gradients, present: Flags, clip: Clip) -> Vector:
    """``Σ_i min(1, C/‖g_i‖) g_i`` over the rows that are present and whose gradient is finite."""
    norm = jnp.linalg.norm(gradients, axis=-1)
    usable = present & jnp.isfinite(norm)
    # Wider by the slack that every price includes: a row whose proved bound is the clip itself is not scaled.
    # Scaled rows are no gradients, and their sum need not be that of a convex potential.
    limit = inside(clip * (1.0 + CLIP_SLACK), gradients.shape[-1])
    factors = jnp.where(usable, jnp.minimum(1.0, limit / jnp.maximum(norm, 1e-300)), 0.0)
    return factors @ jnp.where(usable[:, None], gradients, 0.0)


@cache
def check_arithmetic() -> None:
    """Refuse a compiler that takes every number for finite, once in a process: no guard above would hold."""

    @jax.jit
    def kept(rows: jax.Array) -> tuple[jax.Array, jax.Array]:
        held_slopes = held(jnp.exp(rows[:, 0]) - jnp.exp(2 * rows[:, 0]), jnp.ones(len(rows)))
        return clipped_sum(rows, jnp.ones(len(rows), dtype=bool), 1.0), held_slopes

    with jax.enable_x64(True):
        rows = jnp.asarray([[np.nan, 1.0], [np.inf, 1.0], [1e200, -np.inf], [800.0, np.nan], [3.0, 4.0]])
        total, slopes = map(np.asarray, kept(rows))
    if not (np.allclose(total, [0.6, 0.8], rtol=1e-9) and np.all(np.abs(slopes) <= 1.0)):
        raise ReleaseError(
            "compiled code here takes every number for finite (XLA_FLAGS with fast math that does not honour "
            "NaNs and infinities?), so that no row's bound is enforced: unset these flags and start anew."
        )


# ``(gradients, present) ↦ Σ_i clip(g_i)`` of a block of rows.
BlockSum = Callable[[Gradients, Flags], Vector]

# Elements of what a block of rows needs in between: on a CPU it should stay in cache.
_BLOCK_ELEMENTS = {"cpu": 2**18}
_BLOCK_ELEMENTS_ELSEWHERE = 2**24
# A clip of a coordinate, less the rounding of its product with the root of the metric.
_INSIDE = 1.0 - 2.0**-45


def schedule_gradient(
    model: Potential, whitening: Whitening, schedule: Schedule, states: int | None, clip: Clip
) -> ClippedGradient:
    """The clipped data gradient that a schedule declares: by the norm, or coordinate by coordinate.

    ``clip``, of the norm, may be known only when the program runs.
    """
    if schedule.within < math.inf:
        # What rounds off is charged.
        model = replace(model, term=model.term.written_out)
    if schedule.clips is not None:
        return boxed_gradient(model, whitening, schedule.clips, states or 1)
    return clipped_gradient(model, whitening, clip, states)


def clipped_gradient(
    model: Potential, whitening: Whitening, clip: Clip, states: int | None = None
) -> ClippedGradient:
    """The clipped data gradient of ``model`` in whitened coordinates.

    ``states``: how many states share every sum over all rows; ``None`` where rows are selected for each sum.
    """
    if model.term.predictor is None:
        return _by_blocks(model, whitening, partial(clipped_sum, clip=clip), states or 1)
    return affine_rows(model.term.predictor, whitening, clip, whole=states is not None)


class AffineRows(NamedTuple):
    """Rows of one affine predictor.

    ``design``: whitened, zero where a row cannot be used; ``(rows, p)`` of rows to select from, and by
    columns, ``(p, rows)``, where all are in each sum, which takes half the time. ``cap``: of the slope.
    """

    design: jax.Array
    cap: Float[Array, " rows"]
    offset: Float[Array, " rows"] | None
    columns: Columns
    present: Flags


def affine_rows(predictor: Predictor, whitening: Whitening, clip: Clip, whole: bool) -> ClippedGradient:
    """Rows whose slopes are held at their caps ``C/‖Aᵀx_i‖``: no gradient of a row is formed.

    **Guarantee**: what hidden states cost rests on ``‖x‖ ≤ R`` of the designs that run, before whitening,
    which holds here of every row but for rounding, whatever was proved, or proposed, of the declared domain.
    """
    score = jax.vmap(predictor.slope)

    def prepare(columns: Columns, present: Flags) -> AffineRows:
        plain = jax.vmap(rowwise(predictor.designs))(columns)[:, 0]
        length = jnp.linalg.norm(plain, axis=-1, keepdims=True)
        shorter = plain * (predictor.radius / length)
        design = whitening.pull_back(jnp.where(length > predictor.radius, shorter, plain))
        usable = jnp.isfinite(jnp.linalg.norm(design, axis=-1)) & jnp.isfinite(length[:, 0])
        design = jnp.where(usable[:, None], design, 0.0)
        norm = jnp.linalg.norm(design, axis=-1) + UNDERFLOW
        cap = jnp.where(usable, inside(clip, design.shape[1]) / norm, 0.0)
        offset = None if predictor.centred else jax.vmap(rowwise(predictor.offsets))(columns)[:, 0]
        # The design, as a rule the widest, is seldom one of them.
        read = {name: column for name, column in columns.items() if name in predictor.reads}
        return AffineRows(design.T if whole else design, cap, offset, read, present & usable)

    def total(u: Vector, rows: AffineRows) -> Vector:
        eta = u @ rows.design if whole else rows.design @ u
        slope = score(eta if rows.offset is None else eta + rows.offset, rows.columns)
        slope = held(slope, jnp.where(rows.present, rows.cap, 0.0))
        return rows.design @ slope if whole else slope @ rows.design

    return ClippedGradient(prepare, total)


class GeneralRows(NamedTuple):
    """The rows as they came, and which of them are present."""

    columns: Columns
    present: Flags


def boxed_gradient(
    model: Potential, whitening: Whitening, clips: tuple[float, ...], states: int = 1
) -> ClippedGradient:
    """``Σ_i clip(Aᵀ∇v(θ, d_i))``, every coordinate apart, for a diagonal ``M``.

    **Guarantee**: coordinate ``j`` of a row's term is at most ``√M_jj C_j`` in size; a row whose gradient is
    not finite, or that is not present, contributes exactly zero.
    """

    def of_block(gradients: Gradients, present: Flags) -> Vector:
        caps = whitening.pull_back(jnp.asarray(clips) * _INSIDE)
        usable = present & jnp.all(jnp.isfinite(gradients), axis=-1)
        return jnp.where(usable[:, None], jnp.clip(gradients, -caps, caps), 0.0).sum(axis=0)

    return _by_blocks(model, whitening, of_block, states)


def _by_blocks(model: Potential, whitening: Whitening, of_block: BlockSum, states: int) -> ClippedGradient:
    """Sums over blocks of rows, whose gradients are formed one by one; the last block counts its own rows."""
    per_row = jax.vmap(model.row_slope, in_axes=(None, 0))
    most = _BLOCK_ELEMENTS.get(jax.default_backend(), _BLOCK_ELEMENTS_ELSEWHERE)
    fitting = max(1, most // ((model.elements or model.dim) * states))

    def total(u: Vector, rows: GeneralRows) -> Vector:
        def of(block: GeneralRows, own: jax.Array | bool = True) -> jax.Array:
            gradients = whitening.pull_back(per_row(whitening.to_parameter(u), block.columns))
            return of_block(gradients, block.present & own)

        count = rows.present.shape[0]
        size = min(count, fitting, rows_at_once(model.row_slope, u, first_of(rows.columns)))
        if size == count:
            return of(rows)

        def add(i: jax.Array, sum_before: jax.Array) -> jax.Array:
            first = jnp.minimum(i * size, count - size)
            block = jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, first, size), rows)
            return sum_before + of(block, first + jnp.arange(size) >= i * size)

        whole: jax.Array = jax.lax.fori_loop(0, -(-count // size), add, jnp.zeros_like(u))
        return whole

    def prepare(columns: Columns, present: Flags) -> GeneralRows:
        """Rows with the weights of their terms, on which constants of hidden states rest."""
        if model.term.share is not None:
            columns = {**columns, SHARE: mapped(model.term.share, dict(columns), fitting)}
        return GeneralRows(columns, present)

    return ClippedGradient(prepare, total)
