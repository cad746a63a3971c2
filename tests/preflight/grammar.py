"""Random models of one or two parameters: in NumPyro and, apart from that, their densities in SciPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from hypothesis import strategies as st
from numpyro import handlers
from scipy import stats
from scipy.special import expit, gammaln

from private_mcmc.domains import Binary, Box, Counts, Rows


@dataclass(frozen=True)
class Family:
    """A likelihood of one number ``η = θx``: in NumPyro, and its loss in NumPy."""

    name: str
    observed: Any
    outcomes: tuple[float, ...]
    numpyro: Callable[[Any], Any]
    loss: Callable[[np.ndarray, float], np.ndarray]


def _exp(eta: np.ndarray) -> np.ndarray:
    """``exp``, a straight line from 500 on, where it is convex still and stays finite."""
    return np.exp(np.minimum(eta, 500)) * (1 + np.maximum(eta - 500, 0))


FAMILIES = (
    Family(
        "bernoulli logits", Binary(), (0, 1), lambda eta: dist.Bernoulli(logits=eta),
        lambda eta, y: np.logaddexp(0, eta) - y * eta,
    ),
    Family(
        "bernoulli probs", Binary(), (0, 1), lambda eta: dist.Bernoulli(probs=jax.nn.sigmoid(eta)),
        lambda eta, y: np.logaddexp(0, eta) - y * eta,
    ),
    Family(
        "bounded bernoulli", Binary(), (0, 1),
        lambda eta: dist.Bernoulli(probs=0.3 + 0.4 * jax.nn.sigmoid(eta)),
        lambda eta, y: -np.log(np.where(y == 1, 0.3 + 0.4 * expit(eta), 0.7 - 0.4 * expit(eta))),
    ),
    Family(
        "binomial", Counts(4), (0, 4, 2), lambda eta: dist.Binomial(4, logits=eta),
        lambda eta, y: 4 * np.logaddexp(0, eta) - y * eta,
    ),
    Family(
        "poisson", Counts(3), (0, 3), lambda eta: dist.Poisson(jnp.exp(eta)),
        lambda eta, y: _exp(eta) - y * eta + gammaln(y + 1),
    ),
    Family(
        "negative binomial", Counts(3), (0, 3), lambda eta: dist.NegativeBinomial2(jnp.exp(eta), 2.0),
        lambda eta, y: (2 + y) * np.logaddexp(math.log(2), eta) - y * eta,
    ),
    Family(
        "normal", Box(-1, 2), (-1, 2, 0.5), lambda eta: dist.Normal(eta, 1.5),
        lambda eta, y: -stats.norm.logpdf(y, eta, 1.5),
    ),
    Family(
        "laplace", Box(-1, 2), (-1, 2, 0.5), lambda eta: dist.Laplace(eta, 1.5),
        lambda eta, y: np.abs(y - eta) / 1.5,
    ),
    Family(
        "student", Box(-1, 2), (-1, 2, 0.5), lambda eta: dist.StudentT(3.0, eta, 1.5),
        lambda eta, y: -stats.t.logpdf(y, 3.0, eta, 1.5),
    ),
    Family(
        "logistic", Box(-1, 2), (-1, 2, 0.5), lambda eta: dist.Logistic(eta, 1.5),
        lambda eta, y: -stats.logistic.logpdf(y, eta, 1.5),
    ),
    Family(
        "exponential", Box(0.1, 2), (0.1, 2), lambda eta: dist.Exponential(jnp.exp(eta)),
        lambda eta, y: y * _exp(eta) - eta,
    ),
)  # fmt: skip

PRIORS: dict[str, tuple[Callable[[float], Any], Callable[[np.ndarray, float], np.ndarray]]] = {
    "normal": (lambda s: dist.Normal(0, s), lambda t, s: stats.norm.logpdf(t, 0, s)),
    "laplace": (lambda s: dist.Laplace(0, s), lambda t, s: stats.laplace.logpdf(t, 0, s)),
    "student": (lambda s: dist.StudentT(3.0, 0, s), lambda t, s: stats.t.logpdf(t, 3.0, 0, s)),
    "logistic": (lambda s: dist.Logistic(0, s), lambda t, s: stats.logistic.logpdf(t, 0, s)),
}


# Of these the loss is not convex in the predictor.
NOT_CONVEX = ("student", "bounded bernoulli")

Row = dict[str, float]


@dataclass(frozen=True)
class Example:
    """A model of ``η = a + θx + o``, its rows, and what a run would do to it.

    Attributes:
        weight: largest weight of a row, or ``None`` without weights.
        offset: largest ``|o|``, or ``None`` without offsets.
        masked: whether a row says if its first outcome was seen.
        second: family and factor of a second outcome of ``factor·η``, or ``None``.
        intercept: scale of the Normal prior of ``a``, or ``None`` without an intercept.
        metric: preconditioner in whose dual norm rows are clipped, or ``None``.
    """

    family: Family
    prior: str
    scale: float
    radius: float
    n: int
    temper: float
    clip: float | None
    weight: float | None = None
    offset: float | None = None
    masked: bool = False
    second: tuple[Family, float] | None = None
    intercept: float | None = None
    metric: float | None = None

    @property
    def rows(self) -> Rows:
        columns: dict[str, Any] = {"x": Box(-self.radius, self.radius), "y": self.family.observed}
        if self.weight is not None:
            columns["weight"] = Box(0.0, self.weight)
        if self.offset is not None:
            columns["offset"] = Box(-self.offset, self.offset)
        if self.masked:
            columns["seen"] = Binary()
        if self.second is not None:
            columns["z"] = self.second[0].observed
        return Rows(**columns)

    @property
    def dim(self) -> int:
        return 1 if self.intercept is None else 2

    def model(
        self, x: Any, y: Any = None, z: Any = None, weight: Any = 1.0, offset: Any = 0.0, seen: Any = True
    ) -> None:
        theta = numpyro.sample("theta", PRIORS[self.prior][0](self.scale))
        eta = theta * x + offset
        if self.intercept is not None:
            eta = eta + numpyro.sample("a", dist.Normal(0, self.intercept))
        with numpyro.plate("rows", x.shape[0]), handlers.scale(scale=weight):
            with handlers.mask(mask=seen == 1):
                numpyro.sample("y", self.family.numpyro(eta), obs=y)
            if self.second is not None:
                family, factor = self.second
                numpyro.sample("z", family.numpyro(factor * eta), obs=z)

    def ends(self) -> list[Row]:
        """Rows at the extremes of the domain, and inert ones."""
        outcomes: list[Row] = [{"y": y} for y in self.family.outcomes]
        if self.second is not None:
            outcomes = [{**row, "z": z} for row in outcomes for z in self.second[0].outcomes]
        choices: dict[str, tuple[float, ...]] = {"x": (self.radius, -self.radius, 0.0)}
        if self.weight is not None:
            choices["weight"] = (self.weight, 0.0)
        if self.offset is not None:
            choices["offset"] = (-self.offset, self.offset)
        if self.masked:
            choices["seen"] = (1, 0)
        for name, values in choices.items():
            outcomes = [{**row, name: value} for row in outcomes for value in values]
        return outcomes

    def axes(self) -> tuple[np.ndarray, np.ndarray]:
        """The grid of ``θ`` and of ``a``, which broadcast."""
        if self.intercept is None:
            return _axis(self.scale, 20_001, 4e4), np.zeros(1)
        return _axis(self.scale, 701, 4e2)[:, None], _axis(self.intercept, 701, 4e2)[None, :]

    def posterior(self, data: list[tuple[Row, int]]) -> np.ndarray:
        """Probabilities of the grid's cells on rows and how often each occurs.

        The grid resolves the posterior's bulk and reaches far into any prior's tails.
        """
        theta, a = self.axes()
        log = PRIORS[self.prior][1](theta, self.scale) + _log_width(theta)
        if self.intercept is not None:
            log = log + stats.norm.logpdf(a, 0, self.intercept) + _log_width(a)
        for row, times in data:
            if times:
                eta = a + theta * row["x"] + row.get("offset", 0.0)
                log = log - self.temper * times * self.loss(eta, row)
        mass = np.exp(log - np.max(log))
        return mass / mass.sum()

    def clipped_gradient(self, eta: float, row: Row) -> np.ndarray:
        """``M^{1/2}∇v`` where the predictor is ``η``, clipped."""
        design = np.array([row["x"]] if self.intercept is None else [row["x"], 1.0])
        score = np.diff(self._plain(np.array([eta - 1e-5, eta + 1e-5]), row))[0] / 2e-5
        gradient = score * design * (self.metric or 1.0) ** 0.5
        return gradient * min(1.0, self.clip / max(float(np.linalg.norm(gradient)), 1e-300))

    def loss(self, eta: np.ndarray, row: Row) -> np.ndarray:
        """A row's loss at ``η``, Huberised by adding up its clipped slope if rows are clipped."""
        design = math.hypot(row["x"], 0.0 if self.intercept is None else 1.0) * (self.metric or 1.0) ** 0.5
        if self.clip is None or design == 0:
            return self._plain(eta, row)
        steps = _axis(1.0, 400_001, max(1.0, float(np.max(np.abs(eta)))))
        slope = np.diff(self._plain(steps, row)) / np.diff(steps)
        limit = self.clip / design
        total = np.concatenate([[0.0], np.cumsum(np.clip(slope, -limit, limit) * np.diff(steps))])
        return np.interp(eta, steps, total - total[len(total) // 2])

    def _plain(self, eta: np.ndarray, row: Row) -> np.ndarray:
        loss = self.family.loss(eta, row["y"]) * row.get("seen", 1)
        if self.second is not None:
            family, factor = self.second
            loss = loss + family.loss(factor * eta, row["z"])
        return np.asarray(loss * row.get("weight", 1.0), dtype=np.float64)


def _axis(scale: float, points: int, reach: float) -> np.ndarray:
    """Points between ``±scale·reach``, dense around 0."""
    return scale * reach * np.sinh(14 * np.linspace(-1, 1, points)) / math.sinh(14)


def _log_width(points: np.ndarray) -> np.ndarray:
    """The log of the cells' widths on such an axis, up to a constant."""
    reach = float(np.max(np.abs(points)))
    return 0.5 * np.log1p((points * math.sinh(14) / reach) ** 2)


@st.composite
def examples(draw: Any) -> Example:
    family = draw(st.sampled_from(FAMILIES))
    convex = family.name not in NOT_CONVEX
    return Example(
        family=family,
        prior=draw(st.sampled_from(["normal", "normal", *PRIORS])),
        scale=draw(st.sampled_from([0.05, 0.3, 1.0, 3.0])),
        radius=draw(st.sampled_from([0.2, 1.0, 2.0])),
        n=draw(st.sampled_from([1, 3, 40])),
        temper=draw(st.sampled_from([1.0, 0.3, 0.05])),
        clip=draw(st.sampled_from([None, None, 0.05, 0.5])) if convex else None,
    )


@st.composite
def richer(draw: Any) -> Example:
    """Weights, offsets, masks, second outcomes, intercepts and metrics on top of the above."""
    plain = draw(examples())
    second = None
    if draw(st.booleans()):
        other = draw(st.sampled_from([f for f in FAMILIES if plain.clip is None or f.name not in NOT_CONVEX]))
        second = (other, draw(st.sampled_from([1.0, -0.5])))
    return replace(
        plain,
        weight=draw(st.sampled_from([None, 0.5, 2.0])),
        offset=draw(st.sampled_from([None, 0.5])),
        masked=draw(st.booleans()),
        second=second,
        intercept=draw(st.sampled_from([None, None, 0.05, 0.5])),
        metric=None if plain.clip is None else draw(st.sampled_from([None, 0.25, 4.0])),
    )
