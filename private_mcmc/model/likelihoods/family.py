"""What is proved of a loss as a function of its predictor: the record, how such facts combine, and proofs
for a family that is not recognised.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from private_mcmc.domains.rows import Rows
from private_mcmc.model.ir.dependence import Shape, smoothness
from private_mcmc.model.ir.flatten import abstract, row_shapes, trace
from private_mcmc.model.ir.interval import Interval, anything, between, up
from private_mcmc.model.ir.intervals import bounds, overflowing, row_cases, row_values
from private_mcmc.records import Fields

# Parameters of a distribution: their values at one row, and their bounds over all rows.
Given = Mapping[str, jax.Array]
Bounds = Mapping[str, Interval]
Loss: TypeAlias = Callable[[jax.Array, jax.Array, Given], jax.Array]


@dataclass(frozen=True)
class LikelihoodFamily:
    """What is proved of a row's loss ``ψ`` for every row of the domain and every real ``η``.

    ``η`` is a number, or a vector for families with several predictors; then derivatives are measured in
    the Euclidean norm. What is not proved is ``inf`` (or not convex).

    Attributes:
        name: distribution class, ``unknown`` if not recognised.
        link: how ``η`` makes the distribution's parameter: ``identity``, ``logistic``, ``exp``, …
        convex: ``ψ'' ≥ 0``.
        score_bound: ``‖ψ'‖ ≤ score_bound``.
        curvature_bound: ``‖ψ''‖ ≤ curvature_bound``.
        range_bound: ``sup ψ − inf ψ`` over ``η``, for each row.
        growth: ``(a, b)`` with ``ψ'' ≤ a + b|ψ'|``, for a convex ``ψ``: the curvature's bound, if left out.
        why: the proof in a line.
    """

    name: str = "unknown"
    link: str = ""
    convex: bool = False
    score_bound: float = math.inf
    curvature_bound: float = math.inf
    range_bound: float = math.inf
    growth: tuple[float, float] = (math.inf, math.inf)
    why: str = "the form of the loss is not recognised"

    def __post_init__(self) -> None:
        if self.convex and self.growth == (math.inf, math.inf):
            object.__setattr__(self, "growth", (self.curvature_bound, 0.0))

    def clipped_curvature(self, radius: float, clip: float) -> float:
        """Bound on the curvature ``‖x‖²ψ''`` that one row adds, ``‖x‖ ≤ radius``, clipped at ``clip``.

        Clipping ``|ψ'|·‖x‖`` at ``C`` leaves ``ψ''`` where ``|ψ'| < C/‖x‖`` and zero elsewhere, hence at
        most ``a‖x‖² + bC‖x‖``. Infinite unless ``ψ`` is convex.
        """
        if not (self.convex and radius >= 0 and clip >= 0):
            return math.inf
        a, b = self.growth
        offers = [times(radius * radius, self.curvature_bound)]
        offers.append(times(a, radius * radius) + times(b, clip * radius))
        return min(offers)

    def weighted(self, largest: float) -> LikelihoodFamily:
        """The same for ``c·ψ`` with any weight ``0 ≤ c ≤ largest``."""
        return replace(
            self,
            score_bound=times(self.score_bound, largest),
            curvature_bound=times(self.curvature_bound, largest),
            range_bound=times(self.range_bound, largest),
            growth=(times(self.growth[0], largest), self.growth[1]),
        )


UNKNOWN = LikelihoodFamily()


def times(a: float, b: float) -> float:
    """``a·b`` of bounds: zero times unbounded is zero; rounded up."""
    if a == 0 or b == 0:
        return 0.0
    return a * b if a == 1 or b == 1 else up(a * b)


def total(families: Sequence[LikelihoodFamily]) -> LikelihoodFamily:
    """What is proved of ``Σ ψ_s(η)``, all of the same ``η``.

    Growth: only one of them may have ``b > 0``, and ``|ψ_1'| ≤ |Σψ_s'| + Σ_{s≠1} score_s`` turns its
    bound into one by the sum.
    """
    if len(families) == 1:
        return families[0]
    growing = [family for family in families if family.growth[1] > 0]
    growth = (math.inf, math.inf)
    if all(family.convex for family in families) and len(growing) <= 1:
        b = growing[0].growth[1] if growing else 0.0
        rest = math.fsum(family.score_bound for family in families if family not in growing)
        growth = (up(math.fsum(f.growth[0] for f in families) + times(b, rest)), b)
    return LikelihoodFamily(
        name=" + ".join(family.name for family in families),
        link=" + ".join(family.link for family in families),
        convex=all(family.convex for family in families),
        score_bound=up(math.fsum(family.score_bound for family in families)),
        curvature_bound=up(math.fsum(family.curvature_bound for family in families)),
        range_bound=up(math.fsum(family.range_bound for family in families)),
        growth=growth,
        why="; ".join(family.why for family in families),
    )


def separate(families: Sequence[LikelihoodFamily]) -> LikelihoodFamily:
    """What is proved of ``Σ ψ_s(η_s)`` as a function of the vector of all ``η_s``.

    The gradient is the vector of scores, the Hessian block diagonal.
    """
    if len(families) == 1:
        return families[0]
    names = list(dict.fromkeys(family.name for family in families))
    return LikelihoodFamily(
        name=" + ".join(names),
        link=" + ".join(dict.fromkeys(family.link for family in families)),
        convex=all(family.convex for family in families),
        score_bound=up(math.hypot(*(family.score_bound for family in families))),
        curvature_bound=max(family.curvature_bound for family in families),
        range_bound=up(math.fsum(family.range_bound for family in families)),
        why="; ".join(dict.fromkeys(family.why for family in families)),
    )


@dataclass(frozen=True)
class Recognised:
    """A family and its loss ``(η, y, parameters) ↦ ψ``, elementwise; ``joint`` over the last axis of η."""

    family: LikelihoodFamily
    loss: Loss
    joint: bool = False


def recognised(
    name: str,
    link: str,
    loss: Loss,
    why: str,
    *,
    score: float = math.inf,
    curvature: float = math.inf,
    growth: tuple[float, float] = (math.inf, math.inf),
    convex: bool = True,
    joint: bool = False,
) -> Recognised:
    """A family with what is proved of it, and its loss; see :class:`LikelihoodFamily`."""
    family = LikelihoodFamily(name, link, convex, score, curvature, growth=growth, why=why)
    return Recognised(family, loss, joint)


Recogniser: TypeAlias = Callable[[str, Interval, Mapping[str, Interval]], Recognised | None]


@dataclass(frozen=True)
class Entry:
    """A rule for one parameter of a distribution class, and the others that complete the distribution.

    ``centred``: the parameter is the location less the observed value, which counts as 0.
    """

    rule: Recogniser
    needs: tuple[str, ...] = ()
    centred: bool = False


# ``(η, row) ↦ ψ`` of one predictor whose family is not recognised.
RowLoss: TypeAlias = Callable[[ArrayLike, Fields], jax.Array]

_NEAR = np.linspace(-8.0, 8.0, 321)
_FAR = np.concatenate([np.linspace(8.0, 40.0, 65)[1:], [60.0, 100.0]])
_STEEPEST = 1e9
_EDGES = np.concatenate([[-np.inf], -_FAR[::-1], _NEAR, _FAR, [np.inf]])


def certified(loss: RowLoss, rows: Rows) -> LikelihoodFamily:
    """``|ψ'|`` and ``|ψ''|`` over all ``η`` and all rows, where interval arithmetic on pieces bounds them."""
    first = jax.grad(loss)

    def second(eta: jax.Array, row: Fields) -> jax.Array:
        """Forwards, which takes fewer operations, and loses less in them, than backwards once more."""
        slope: jax.Array = jax.jvp(lambda value: first(value, row), (eta,), (jnp.ones_like(eta),))[1]
        return slope

    def derivatives(eta: jax.Array, **row: jax.Array) -> dict[str, jax.Array]:
        return {
            "score": jax.vmap(lambda value: first(value, row))(eta),
            "curvature": jax.vmap(lambda value: second(value, row))(eta),
        }

    program = trace(derivatives, eta=abstract((len(_EDGES) - 1,), np.float64), **row_shapes(rows))
    given = {program.inputs["eta"]: between(_EDGES[:-1], _EDGES[1:])}
    targets = [program.outputs[name] for name in ("score", "curvature")]
    largest = np.zeros(2)
    for known in row_cases(program, rows, (), given):
        if overflowing(program, known, targets):
            return UNKNOWN
        largest = np.maximum(largest, [value.largest for value in bounds(program, known, targets)])
    score, curvature = (float(bound) for bound in largest)
    shape = _shape(loss, rows)
    # A steeper bound is one of rounding at the edge of the floats.
    score = score if shape <= Shape.CONTINUOUS and score <= _STEEPEST else math.inf
    curvature = curvature if shape <= Shape.SMOOTH else math.inf
    if not math.isfinite(min(score, curvature)):
        return UNKNOWN
    return replace(
        UNKNOWN,
        score_bound=score,
        curvature_bound=curvature,
        why=f"interval arithmetic on the derivatives: |ψ'| ≤ {score:.6g}, |ψ''| ≤ {curvature:.6g}",
    )


def _shape(loss: RowLoss, rows: Rows) -> Shape:
    program = trace(
        lambda eta, **row: {"loss": loss(eta, row)}, eta=abstract((), np.float64), **row_shapes(rows)
    )
    given = {**row_values(program, rows, ()), program.inputs["eta"]: anything(())}
    return smoothness(program, "eta", "loss", given)
