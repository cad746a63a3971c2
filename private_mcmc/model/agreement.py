"""Is the model that was read the one that was written? A check for mistakes, against NumPyro's own density.

At synthetic rows and parameters the loss and the prior are compared with NumPyro's potential energy of the
user's model, up to a constant of the row and one of the prior; and differences of that potential along lines
with what is claimed of derivatives (a function is as steep between two points as it is somewhere between
them). Proofs do not rest on it; a reading that fails it is refused.

Both sides are evaluated by the same evaluator of programs, whose mistakes would not show. So NumPyro's side
is compiled by XLA too, once for a program, which shares nothing with that evaluator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import jax
import numpy as np

from private_mcmc.errors import NotYetSupported
from private_mcmc.model.ir.evaluate import evaluate
from private_mcmc.model.ir.flatten import trace
from private_mcmc.model.predictor import Row
from private_mcmc.model.prior import PriorConstants
from private_mcmc.model.refusals import synthetic_rows
from private_mcmc.model.row_model import RowModel
from private_mcmc.records import RUN_ONCE

# Of a row's parameters and the row: NumPyro's terms of the observed sites, and of the latent ones.
Potentials = Callable[[jax.Array, Row], tuple[jax.Array, jax.Array]]

_ROWS, _FEWER_ROWS, _MANY_LATENTS = 6, 3, 256
_STEPS = np.array([-30.0, -8.0, -3.0, -1.0, -0.1, 0.1, 1.0, 3.0, 8.0, 30.0])
_TOLERANCE, _NOISE = 1e-6, 2e-6
# Where NumPyro's own values differ by more than this between float32 and float64, it clamps or cancels.
_ILL_CONDITIONED = 1e-2
_FLOAT32_IS_WORSE = 4.0
_FEWEST = 3
# Longer programs (unrolled loops) take seconds to compile, and are made of the same primitives.
_LONGEST = 1500
# What is compiled is compared at these steps of so many rows.
_COMPILED_STEPS, _COMPILED_ROWS = (5, 6), 3


@dataclass(frozen=True, eq=False)
class _Side:
    """The loss or the prior, by row, line and step.

    Attributes:
        own: NumPyro's values.
        read: those that were read.
        usable: which of NumPyro's are to be relied on.
        blur: how far they may be off.
    """

    own: np.ndarray
    read: np.ndarray
    usable: np.ndarray
    blur: np.ndarray

    def without(self, rough: np.ndarray) -> _Side:
        """The same where NumPyro's values in float32, ``rough``, are nearly those in float64.

        A clamp in one term is hidden by the size of a sum: ``LKJCholesky`` clamps where a correlation is 1 up
        to rounding, in float32 long before float64.
        """
        with np.errstate(invalid="ignore"):
            gap = np.abs(self.own - rough)
            stable = np.isfinite(self.own) & (gap <= _ILL_CONDITIONED * (1 + np.abs(self.own)))
        return replace(self, usable=stable, blur=_FLOAT32_IS_WORSE * gap)

    def agrees(self) -> bool:
        """For every row: ``own − read`` is one number, up to rounding and ``blur``."""
        with np.errstate(invalid="ignore", over="ignore"):
            gaps = self.own - self.read
            sizes = (1 + np.abs(self.own) + np.abs(self.read)) * _TOLERANCE + self.blur
        for gap, size, usable in zip(gaps, sizes, self.usable, strict=True):
            if not np.any(usable):
                continue
            gap, size = gap[usable], size[usable]
            best = int(np.argmin(size))
            if not np.all(np.isfinite(gap)) or np.any(np.abs(gap - gap[best]) > size + size[best]):
                return False
        return True


def refuse_misread(found: RowModel, own: Potentials) -> None:
    """Refuse a potential that is not NumPyro's ``own``.

    Raises:
        NotYetSupported: naming the site that was misread.
    """
    rows = synthetic_rows(found.rows, _FEWER_ROWS if found.dim > _MANY_LATENTS else _ROWS)
    theta, eta = _lines(found, rows)

    def at(row: Row, point: jax.Array) -> tuple[jax.Array, ...]:
        return (*own(point, row), found.row_loss(point, row), found.neg_log_prior(point))

    values = _at_points(at, rows, theta)
    loss, prior = (
        _Side(mine, read, np.isfinite(mine), np.zeros_like(mine))
        for mine, read in zip(values[:2], values[2:], strict=True)
    )
    if _mistake(found, loss, prior, theta, eta) is not None:
        # Only now, since it traces the model once more.
        with jax.enable_x64(False):
            rough = _at_points(lambda row, point: own(point, row), rows, theta)
        mistake = _mistake(found, loss.without(rough[0]), prior.without(rough[1]), theta, eta)
        if mistake is not None:
            raise NotYetSupported(
                f"{mistake} (compared at synthetic rows and parameters). What was read would be another "
                "model than the one written: write the distribution in its plain form, and please report "
                "this model."
            )
    _refuse_misevaluated(found, own, rows, theta, np.stack([loss.own, prior.own], axis=-1))


def _refuse_misevaluated(
    found: RowModel, own: Potentials, rows: Row, theta: np.ndarray, evaluated: np.ndarray
) -> None:
    """Compare NumPyro's potentials as they were ``evaluated`` with what XLA makes of them."""
    known = _known(found.program.text([*found.program.outputs.values()]))
    if known["checked"] or len(found.program.equations) > _LONGEST:
        return
    places = [(row, 0, step) for row in range(_COMPILED_ROWS) for step in _COMPILED_STEPS]
    points = [(theta[at], {name: column[at[0]] for name, column in rows.items()}) for at in places]
    ours, by_xla = np.array([evaluated[at] for at in places]), _by_xla(own, points)
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
    return bool(np.all(close | same | ~np.isfinite(slack)))


def _lines(found: RowModel, rows: Row) -> tuple[np.ndarray, np.ndarray]:
    """Parameters on lines, ``(rows, lines, steps, p)``, and the predictors there, ``(…, k)``.

    The second line is one of steps of the predictors, if no two share a parameter.
    """
    count, several = len(next(iter(rows.values()))), found.predictors
    turns = np.outer(0.7 + 0.37 * np.arange(count), np.arange(1.0, found.dim + 1))
    theta = (_STEPS[:, None] * np.cos(turns)[:, None])[:, None]
    if several is None:
        return theta, theta[..., :0]
    designs, offsets = _at_all(lambda row: (several.design(row), several.offset(row)), rows)
    goals = _STEPS[:, None] * np.cos(np.arange(several.size) * 1.3) - offsets[:, None]
    squares = np.sum(np.square(designs), axis=2)[:, None]
    scales = np.where(squares > 0, goals / np.where(squares > 0, squares, 1.0), 0.0)
    theta = np.concatenate([theta, (scales @ designs)[:, None]], axis=1)
    return theta, np.einsum("rkp,rlsp->rlsk", designs, theta) + offsets[:, None, None]


def _at_points(
    function: Callable[..., tuple[jax.Array, ...]], rows: Row, theta: np.ndarray
) -> list[np.ndarray]:
    """``function(row, θ)`` at the parameters ``(rows, lines, steps, p)`` of every row."""
    each = math.prod(theta.shape[1:3])
    repeated = {name: np.repeat(column, each, axis=0) for name, column in rows.items()}
    results = _at_all(function, repeated, theta.reshape(-1, theta.shape[-1]))
    return [value.reshape(theta.shape[:3]) for value in results]


def _at_all(
    function: Callable[..., tuple[jax.Array, ...]], rows: Row, theta: np.ndarray | None = None
) -> list[np.ndarray]:
    """``function(row, …)`` for every row, with a parameter of its own if there are some."""
    inputs = dict(rows) if theta is None else {**rows, "theta": theta}

    def at_one(given: Mapping[str, jax.Array]) -> tuple[jax.Array, ...]:
        columns = {name: given[name] for name in rows}
        return function(columns) if theta is None else function(columns, given["theta"])

    program = trace(lambda **given: dict(enumerate(jax.vmap(at_one)(given))), **inputs)
    return [np.asarray(part, np.float64) for part in evaluate(program, [*program.outputs], **inputs)]


def _mistake(found: RowModel, loss: _Side, prior: _Side, theta: np.ndarray, eta: np.ndarray) -> str | None:
    """What differs, in words, judged by the points that are usable."""
    sites = ", ".join(f"{site.name!r} ({site.family})" for site in found.observations)
    latents = ", ".join(f"{site.name!r} ({site.family})" for site in found.sites)
    together = _Side(*(part[None] for part in (prior.own, prior.read, prior.usable, prior.blur)))
    if not together.agrees():
        return f"the prior of site {latents} differs from NumPyro's own log density"
    if not loss.agrees():
        return f"the likelihood of site {sites} differs from NumPyro's own log density"
    if found.predictors is not None and np.max(np.sum(loss.usable, axis=(1, 2)), initial=0) < _FEWEST:
        return f"the log density of site {sites} is not a number, so that it could not be compared"
    for at in np.ndindex(theta.shape[:2]):
        checks = [(sites, loss, speed, claim) for speed, claim in _row_claims(found, theta[at], eta[at])]
        if at[1] == 0:
            checks.append((latents, prior, 1.0, _prior_claim(found.prior, theta[at])))
        for names, side, speed, claim in checks:
            broken = broken_claim(claim, _STEPS, side.own[at], side.usable[at], speed, side.blur[at])
            if broken:
                return f"NumPyro's own log density of site {names} breaks the claim that {broken}"
    return None


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
    steps: Sequence[float] | np.ndarray,
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


def _row_claims(found: RowModel, theta: np.ndarray, eta: np.ndarray) -> Iterator[tuple[float, Claim]]:
    """Claims of the loss in ``θ`` and in the predictors, with the speed of the line in each."""
    known, several = found.constants, found.predictors
    lowest = 0.0 if known.convex else -known.curvature_bound
    yield _speed(theta), Claim("v", known.gradient_bound, lowest, known.curvature_bound, known.range_bound)
    if several is not None:
        family = several.family
        lowest = 0.0 if family.convex else -family.curvature_bound
        yield _speed(eta), Claim("ψ", family.score_bound, lowest, family.curvature_bound, family.range_bound)


def _speed(points: np.ndarray) -> float:
    return float(np.linalg.norm(points[-1] - points[0]) / np.ptp(_STEPS))


def _prior_claim(prior: PriorConstants, line: np.ndarray) -> Claim:
    """Of ``K`` along a line through the origin, per unit of its step."""
    direction = (line[-1] - line[0]) / np.ptp(_STEPS)
    if prior.hessian is not None:
        full = np.diag(prior.hessian) if prior.hessian.ndim == 1 else prior.hessian
        bend = float(direction @ full @ direction)
        return Claim("K", math.inf, bend, bend, math.inf)
    squares = direction**2
    lower, upper = (
        float(np.sum(end[squares > 0] * squares[squares > 0])) for end in (prior.lower, prior.upper)
    )
    return Claim("K", math.inf, lower, upper, math.inf)
