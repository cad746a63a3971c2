"""Is the model that was read the one that was written? A check for mistakes, against NumPyro's own density.

At synthetic rows and parameters the loss and the prior are compared with NumPyro's potential energy of the
user's model, up to a constant of the row and one of the prior; and differences of that potential along lines
with what is claimed of derivatives (a function is as steep between two points as it is somewhere between
them). Proofs do not rest on it; a reading that fails it is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import jax
import numpy as np

from private_mcmc.domains.rows import Rows
from private_mcmc.errors import NotYetSupported
from private_mcmc.model.ir.evaluate import evaluate, evaluate_each
from private_mcmc.model.ir.flatten import abstract, trace
from private_mcmc.model.ir.program import Program
from private_mcmc.model.predictor import MultiPredictor, Row
from private_mcmc.model.priors.prior import PriorConstants
from private_mcmc.model.refusals import synthetic_rows
from private_mcmc.model.row_constants import RowConstants
from private_mcmc.model.sites import ModelSites
from private_mcmc.records import RUN_ONCE

_NOISE = 2e-6


@dataclass(frozen=True)
class Claim:
    """Of a function ``f``: ``‖f'‖ ≤ slope``, ``lower ≤ f'' ≤ upper`` and ``sup f − inf f ≤ range``."""

    name: str
    slope: float
    lower: float
    upper: float
    range: float


def broken_claim(
    claim: Claim,
    steps: Sequence[float],
    values: np.ndarray,
    usable: np.ndarray,
    speed: float,
    blur: np.ndarray | float = 0.0,
) -> str | None:
    """The claim that the values, known up to ``blur``, deny, in words.

    ``speed`` is the length of the line per unit of ``steps``.
    """
    at, found = np.asarray(steps)[usable], values[usable]
    if len(found) < 2:
        return None
    errors = _NOISE * (1 + np.abs(found)) + np.broadcast_to(blur, values.shape)[usable]
    noise = errors[1:] + errors[:-1]
    lengths = np.diff(at)
    slopes, spread = np.diff(found) / lengths, noise / lengths
    name = claim.name
    if np.any(np.abs(slopes) > _product(claim.slope, speed) + spread):
        return f"|{name}'| ≤ {claim.slope:.6g}"
    if np.ptp(found) > claim.range + 2 * np.max(noise):
        return f"sup {name} − inf {name} ≤ {claim.range:.6g}"
    bends = 2 * np.diff(slopes) / (lengths[1:] + lengths[:-1])
    spread = 2 * (spread[1:] + spread[:-1]) / (lengths[1:] + lengths[:-1])
    lowest, highest = (_product(end, speed * speed) for end in (claim.lower, claim.upper))
    slack = _NOISE * np.array([abs(end) if math.isfinite(end) else 0.0 for end in (lowest, highest)])
    if np.any(bends < lowest - spread - slack[0]):
        return f"{name}'' ≥ {claim.lower:.6g}"
    if np.any(bends > highest + spread + slack[1]):
        return f"{name}'' ≤ {claim.upper:.6g}"
    return None


def _product(bound: float, factor: float) -> float:
    return 0.0 if bound == 0 else bound * factor if factor > 0 or math.isfinite(bound) else bound


_ROWS, _FEWER_ROWS, _MANY_LATENTS = 6, 3, 256
_STEPS = (-30.0, -8.0, -3.0, -1.0, -0.1, 0.1, 1.0, 3.0, 8.0, 30.0)
_TOLERANCE = 1e-6
# Where NumPyro's own values differ by more than this between float32 and float64, it clamps or cancels.
_ILL_CONDITIONED = 1e-2
_FLOAT32_IS_WORSE = 4.0
_FEWEST = 3

Potentials = Callable[[jax.Array, Row], tuple[jax.Array, jax.Array]]


@dataclass(frozen=True, eq=False)
class Reading:
    """What was read of a model, and what is claimed of it."""

    model_sites: ModelSites
    rows: Rows
    row_loss: Callable[[jax.Array, Row], jax.Array]
    neg_log_prior: Callable[[jax.Array], jax.Array]
    predictors: MultiPredictor | None
    constants: RowConstants
    prior: PriorConstants


@dataclass(frozen=True, eq=False)
class _Values:
    """By row, line and step: NumPyro's loss and prior, those that were read, ``θ``, the predictors, and how
    far NumPyro's own may be off."""

    own_loss: np.ndarray
    own_prior: np.ndarray
    loss: np.ndarray
    prior: np.ndarray
    theta: np.ndarray
    eta: np.ndarray
    loss_blur: np.ndarray
    prior_blur: np.ndarray


def refuse_misread(reading: Reading, own: Potentials) -> None:
    """Refuse a potential that is not NumPyro's ``own``, ``(θ, row) ↦`` observed and latent sites' terms."""
    few = reading.model_sites.dim > _MANY_LATENTS
    rows = synthetic_rows(reading.rows, _FEWER_ROWS if few else _ROWS)
    values = _evaluate(reading, own, rows)
    usable = np.isfinite(values.own_loss), np.isfinite(values.own_prior)
    if _mistake(reading, values, *usable) is None:
        return
    # Only now, since it traces the model once more.
    rough_loss, rough_prior = _rough(own, rows, values.theta)
    loss_blur, prior_blur = _blur(values.own_loss, rough_loss), _blur(values.own_prior, rough_prior)
    values = replace(values, loss_blur=loss_blur, prior_blur=prior_blur)
    usable = _stable(values.own_loss, rough_loss), _stable(values.own_prior, rough_prior)
    mistake = _mistake(reading, values, *usable)
    if mistake is not None:
        raise NotYetSupported(
            f"{mistake} (compared at synthetic rows and parameters). What was read would be another model "
            "than the one written: write the distribution in its plain form, and please report this model."
        )


def _evaluate(reading: Reading, own: Potentials, rows: Row) -> _Values:
    several = reading.predictors
    count = len(next(iter(rows.values())))
    turns = np.outer(0.7 + 0.37 * np.arange(count), np.arange(1.0, reading.model_sites.dim + 1))
    steps = np.asarray(_STEPS)
    theta = (steps[:, None] * np.cos(turns)[:, None])[:, None]
    if several is not None:
        designs, offsets = _at_all(lambda row: (several.design(row), several.offset(row)), rows)
        reaching = [_reaching(design, offset, steps) for design, offset in zip(designs, offsets, strict=True)]
        theta = np.concatenate([theta, np.stack(reaching)[:, None]], axis=1)

    def at(row: Row, point: jax.Array) -> tuple[jax.Array, ...]:
        return (*own(point, row), reading.row_loss(point, row), reading.neg_log_prior(point))

    own_loss, own_prior, loss, prior = _at_points(at, rows, theta)
    eta = theta[..., :0]
    if several is not None:
        eta = np.einsum("rkp,rlsp->rlsk", designs, theta) + offsets[:, None, None]
    exact = np.zeros_like(own_loss)
    return _Values(own_loss, own_prior, loss, prior, theta, eta, exact, exact)


def _rough(own: Potentials, rows: Row, theta: np.ndarray) -> list[np.ndarray]:
    """NumPyro's potentials in float32."""
    with jax.enable_x64(False):
        return _at_points(lambda row, point: own(point, row), rows, theta)


def _at_points(
    function: Callable[..., tuple[jax.Array, ...]], rows: Row, theta: np.ndarray
) -> list[np.ndarray]:
    """``function(row, θ)`` at the parameters ``(rows, lines, steps, p)`` of every row."""
    each = math.prod(theta.shape[1:3])
    repeated = {name: np.repeat(column, each, axis=0) for name, column in rows.items()}
    results = _at_all(function, repeated, theta.reshape(-1, theta.shape[-1]))
    return [value.reshape(theta.shape[:3]) for value in results]


def _at_all(
    function: Callable[..., tuple[jax.Array, ...]], rows: Row, *thetas: np.ndarray
) -> list[np.ndarray]:
    """``function(row, …)`` for every row."""

    def at_one(**arguments: jax.Array) -> dict[int, jax.Array]:
        columns, points = {name: arguments[name] for name in rows}, [arguments["theta"] for _ in thetas]
        return dict(enumerate(function(columns, *points)))

    arguments = {**rows, **({"theta": thetas[0]} if thetas else {})}
    shapes = {name: abstract(np.shape(value)[1:], value.dtype) for name, value in arguments.items()}
    program = trace(at_one, **shapes)
    return [np.asarray(part, np.float64) for part in evaluate_each(program, [*program.outputs], **arguments)]


def _reaching(design: np.ndarray, offset: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Parameters whose predictors are ``steps`` times a fixed pattern, if no two share a parameter."""
    squares = np.sum(np.square(design), axis=1)
    goals = steps[:, None] * np.cos(np.arange(len(offset)) * 1.3) - offset
    scales = np.where(squares > 0, goals / np.where(squares > 0, squares, 1.0), 0.0)
    return np.asarray(scales @ design)


def _stable(values: np.ndarray, rough: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        close = np.abs(values - rough) <= _ILL_CONDITIONED * (1 + np.abs(values))
    return np.asarray(np.isfinite(values) & close)


def _blur(values: np.ndarray, rough: np.ndarray) -> np.ndarray:
    """How far NumPyro's own value may be off: a clamp in one term is hidden by the size of a sum.

    ``LKJCholesky`` clamps where a correlation is 1 up to rounding, in float32 long before float64.
    """
    with np.errstate(invalid="ignore"):
        return np.asarray(_FLOAT32_IS_WORSE * np.abs(values - rough))


def _mistake(reading: Reading, values: _Values, of_loss: np.ndarray, of_prior: np.ndarray) -> str | None:
    """What differs, in words, judged by the points that are usable."""
    sites = ", ".join(f"{site.name!r} ({site.family})" for site in reading.model_sites.observations)
    latents = ", ".join(f"{site.name!r} ({site.family})" for site in reading.model_sites.latents)
    if not _same(values.own_prior[None], values.prior[None], of_prior[None], values.prior_blur[None]):
        return f"the prior of site {latents} differs from NumPyro's own log density"
    if not _same(values.own_loss, values.loss, of_loss, values.loss_blur):
        return f"the likelihood of site {sites} differs from NumPyro's own log density"
    if reading.predictors is not None and np.max(np.sum(of_loss, axis=(1, 2)), initial=0) < _FEWEST:
        return f"the log density of site {sites} is not a number, so that it could not be compared"
    for index in np.ndindex(values.own_loss.shape[:2]):
        for speed, claim in _row_claims(reading, values, index):
            broken = broken_claim(
                claim, _STEPS, values.own_loss[index], of_loss[index], speed, values.loss_blur[index]
            )
            if broken:
                return f"NumPyro's own log density of site {sites} breaks the claim that {broken}"
    for row in range(values.own_prior.shape[0]):
        claim = _prior_claim(reading.prior, values.theta[row, 0])
        broken = broken_claim(
            claim, _STEPS, values.own_prior[row, 0], of_prior[row, 0], 1.0, values.prior_blur[row, 0]
        )
        if broken:
            return f"NumPyro's own log density of site {latents} breaks the claim that {broken}"
    return None


def _same(own: np.ndarray, read: np.ndarray, usable: np.ndarray, blur: np.ndarray) -> bool:
    """For every index of the first axis: ``own − read`` is one number, up to rounding and ``blur``."""
    with np.errstate(invalid="ignore", over="ignore"):
        gaps = (own - read).reshape(len(own), -1)
        sizes = (1 + np.abs(own) + np.abs(read)) * _TOLERANCE + blur
    sizes, usable = sizes.reshape(len(own), -1), usable.reshape(len(own), -1)
    for gap, size, counts in zip(gaps, sizes, usable, strict=True):
        if not np.any(counts):
            continue
        if not np.all(np.isfinite(gap[counts])):
            return False
        best = int(np.argmin(np.where(counts, size, np.inf)))
        if not np.all(np.abs(gap - gap[best])[counts] <= (size + size[best])[counts]):
            return False
    return True


def _row_claims(reading: Reading, values: _Values, index: tuple[int, ...]) -> Sequence[tuple[float, Claim]]:
    """Claims of the loss in ``θ`` and in the predictors, with the speed of the line in each."""
    known = reading.constants
    curvature = known.curvature_bound
    lowest = 0.0 if known.convex else -curvature
    claims = [
        (
            _speed(values.theta[index]),
            Claim("v", known.gradient_bound, lowest, curvature, known.range_bound),
        )
    ]
    if reading.predictors is not None:
        family = reading.predictors.family
        curvature = family.curvature_bound
        lowest = 0.0 if family.convex else -curvature
        claims.append(
            (
                _speed(values.eta[index]),
                Claim("ψ", family.score_bound, lowest, curvature, family.range_bound),
            )
        )
    return claims


def _speed(points: np.ndarray) -> float:
    return float(np.linalg.norm(points[-1] - points[0])) / (_STEPS[-1] - _STEPS[0])


def _prior_claim(prior: PriorConstants, line: np.ndarray) -> Claim:
    """Of ``K`` along a line through the origin, per unit of its step."""
    direction = (line[-1] - line[0]) / (_STEPS[-1] - _STEPS[0])
    if prior.hessian is not None:
        full = np.diag(prior.hessian) if prior.hessian.ndim == 1 else prior.hessian
        bend = float(direction @ full @ direction)
        return Claim("K", math.inf, bend, bend, math.inf)
    squares = direction**2
    lower, upper = (
        float(np.sum(end[squares > 0] * squares[squares > 0])) for end in (prior.lower, prior.upper)
    )
    return Claim("K", math.inf, lower, upper, math.inf)


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
    columns = synthetic_rows(rows, _FEWER_ROWS)
    each = [{name: column[i] for name, column in columns.items()} for i in range(_FEWER_ROWS)]
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
