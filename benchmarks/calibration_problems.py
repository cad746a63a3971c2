"""The problems of the calibration benchmark: models of every class, on real and on synthetic covariates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.distributions import biject_to
from scipy.optimize import minimize

from benchmarks.datasets import LOADERS
from benchmarks.datasets.tables import TABLES
from private_mcmc import Ball, Binary, Box, Categories, Counts, Rows
from private_mcmc.accounting import gdp
from private_mcmc.errors import DeclarationError
from private_mcmc.inference.posterior import Chains, posterior_of
from private_mcmc.model import RowModel, read
from private_mcmc.planning import Policy
from private_mcmc.planning.facts import facts_of
from private_mcmc.planning.simulate import simulate
from private_mcmc.preflight.certificates import certified_temper
from private_mcmc.target import Adjacency, Target

Array = np.ndarray[Any, np.dtype[np.float64]]
Columns = Mapping[str, Any]
DELTA = 1e-6
# Fewer draws than users get: a replicate needs quantiles only.
_CHAINS = Chains(chains=2, warm_up=75, draws=150)
_MOST_ROWS = 10_000
# Where a larger share of the outcomes is beyond the declared range, rows are not those of the parameter.
_MOST_CUT = 1e-3


@dataclass(frozen=True, eq=False)
class Problem:
    """A model, and people: with their real outcomes, or with those that the model draws.

    Attributes:
        columns: of the covariates, and of real outcomes, ``(n, …)``.
        outcome: the outcome's column.
        real: whether outcomes are real.
    """

    name: str
    model: Callable[..., Any]
    rows: Rows
    columns: Columns
    outcome: str = "y"
    real: bool = False
    adjacency: Adjacency = "replace_one"
    guarantee: str = "run"

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(next(iter(self.columns.values())))

    @cached_property
    def reading(self) -> RowModel:
        """The model as the library reads it."""
        return read(self.model, self.rows, n=self.n)

    def _policy(self, epsilon: float) -> Policy:
        """That of the plan that users get."""
        budget, temper = gdp.budget(epsilon, DELTA), 1.0
        if self.guarantee == "posterior":
            target = Target(epsilon, DELTA, self.adjacency)
            temper = certified_temper(self.reading, target, self.n, "posterior")[0]
        return Policy(facts_of(self.reading, self.n, self.adjacency, budget, temper))

    def outcomes(self, seed: int) -> tuple[Columns, Array]:
        """People, and the parameter on the unconstrained space that intervals should hold.

        Raises:
            DeclarationError: where outcomes of the drawn parameter do not fit the declared range: cut at its
                end they tell of another parameter, with or without privacy.
        """
        with jax.enable_x64(True):
            if self.real:
                return self.columns, self._mode
            given = {name: self.rows.columns[name].project(column) for name, column in self.columns.items()}
            found = handlers.trace(handlers.seed(self.model, jax.random.key(seed))).get_trace(**given)
            free = [
                np.ravel(biject_to(found[site.name]["fn"].support).inv(found[site.name]["value"]))
                for site in self.reading.sites
            ]
            drawn = {self.outcome: np.asarray(found[self.outcome]["value"])}
            inside = np.asarray(self.rows.columns[self.outcome].project(drawn[self.outcome]))
            if np.mean(inside != drawn[self.outcome]) > _MOST_CUT:
                raise DeclarationError("outcomes of this parameter are beyond their declared range")
            return {**self.columns, **drawn}, np.concatenate(free)

    @cached_property
    def _mode(self) -> Array:
        """The non-private posterior's mode, which many rows make its mean."""
        rows, weights = distinct(self.reading, self.columns)

        def potential(theta: jax.Array) -> jax.Array:
            losses = jax.vmap(self.reading.row_loss, in_axes=(None, 0))(theta, rows)
            return self.reading.neg_log_prior(theta) + jnp.sum(jnp.asarray(weights) * losses)

        both, hessian = jax.jit(jax.value_and_grad(potential)), jax.jit(jax.hessian(potential))
        start = np.zeros(self.reading.dim)
        at = minimize(lambda x: tuple(np.asarray(each) for each in both(x)), start, jac=True).x
        for _ in range(10):
            at = at - np.linalg.solve(hessian(at), both(at)[1])
        return np.asarray(at)

    def draws(self, people: Columns, epsilon: float, seed: int) -> Array:
        """Draws given what a run on these people releases, ``(draws, p)``."""
        policy = self._policy(epsilon)
        history = simulate(policy, *distinct(self.reading, people), seed)
        made, key = policy.conclude(history), jax.random.key(seed)
        given = posterior_of(self.reading, history, made, key, _CHAINS)
        return given.draws.reshape(-1, self.reading.dim)


def distinct(reading: RowModel, people: Columns) -> tuple[dict[str, Any], Array]:
    """Distinct rows and how many people each stands for."""
    inside = {name: np.asarray(column) for name, column in reading.rows.project(people).items()}
    flat = np.concatenate([column.reshape(len(column), -1) for column in inside.values()], axis=1)
    _, first, counts = np.unique(flat, axis=0, return_index=True, return_counts=True)
    return {name: jnp.asarray(column[first]) for name, column in inside.items()}, counts.astype(np.float64)


def simulated(name: str, adjacency: Adjacency = "replace_one", guarantee: str = "run") -> Problem:
    """Outcomes of the model: on the covariates of a data set or table, or a family on synthetic ones."""
    random = np.random.default_rng(0)
    if name in TABLES:
        asked = TABLES[name]()
        columns = {key: value for key, value in asked.columns.items() if key != asked.outcome}
        return Problem(name, asked.model, asked.rows, columns, asked.outcome, False, adjacency, guarantee)
    if name in LOADERS:
        data = LOADERS[name]()
        regression = replace(data.regression, prior_sd=4.0 if data.regression.family != "poisson" else 1.5)
        few = random.permutation(data.n)[:_MOST_ROWS]
        return Problem(
            name, regression.model, data.rows, {"X": data.X[few]}, "y", False, adjacency, guarantee
        )
    model, outcome, dim = FAMILIES[name]
    n = _MOST_ROWS
    values = [np.ones(n), *random.beta(2, 4, (2, n)), *(random.random((dim - 3, n)) < 0.2)]
    columns = {"X": np.stack(values, axis=1) / np.sqrt(dim)}
    domains: dict[str, Any] = {"X": Ball(1.0, dim=dim), "y": outcome}
    if name == "groups":
        columns["group"] = random.choice(6, n, p=np.arange(1, 7) / 21)
        domains["group"] = Categories(6)
    return Problem(name, model, Rows(**domains), columns, "y", False, adjacency, guarantee)


def real(name: str, adjacency: Adjacency = "replace_one", guarantee: str = "run") -> Problem:
    """A whole data set or table with its outcomes."""
    if name in TABLES:
        asked = TABLES[name]()
        return Problem(
            name, asked.model, asked.rows, asked.columns, asked.outcome, True, adjacency, guarantee
        )
    data = LOADERS[name]()
    return Problem(
        name, data.regression.model, data.rows, {"X": data.X, "y": data.y}, "y", True, adjacency, guarantee
    )


def _effects(X: Any, prior: dist.Distribution) -> Any:
    return numpyro.sample("w", prior.expand([X.shape[1]]).to_event(1))


def _observed(X: Any, law: dist.Distribution, y: Any) -> None:
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", law, obs=y)


def _line(X: Any, y: Any = None) -> None:
    _observed(X, dist.Normal(X @ _effects(X, dist.Normal(0, 4)), 1.0), y)


def _counts(X: Any, y: Any = None) -> None:
    _observed(X, dist.Poisson(jnp.exp(X @ _effects(X, dist.Normal(0, 1.5)))), y)


def _laplace(X: Any, y: Any = None) -> None:
    _observed(X, dist.Bernoulli(logits=X @ _effects(X, dist.Laplace(0, 2))), y)


def _unknown_sd(X: Any, y: Any = None) -> None:
    w, sd = _effects(X, dist.Normal(0, 2)), numpyro.sample("sd", dist.LogNormal(0, 0.4))
    _observed(X, dist.Normal(X @ w, sd), y)


def _negative_binomial(X: Any, y: Any = None) -> None:
    w, shape = _effects(X, dist.Normal(0, 1)), numpyro.sample("shape", dist.LogNormal(0, 0.5))
    _observed(X, dist.NegativeBinomial2(jnp.exp(X @ w), shape), y)


def _softmax(X: Any, y: Any = None) -> None:
    w = numpyro.sample("w", dist.Normal(0, 2).expand([X.shape[1], 2]).to_event(2))
    _observed(X, dist.Categorical(logits=jnp.concatenate([jnp.zeros((X.shape[0], 1)), X @ w], axis=1)), y)


def _groups(X: Any, group: Any, y: Any = None) -> None:
    w, spread = _effects(X, dist.Normal(0, 2)), numpyro.sample("spread", dist.HalfNormal(1.0))
    effect = numpyro.sample("effect", dist.Normal(0, 1).expand([6]).to_event(1))
    _observed(X, dist.Bernoulli(logits=X @ w + spread * effect[group]), y)


FAMILIES: dict[str, tuple[Callable[..., None], Any, int]] = {
    "line": (_line, Box(-30.0, 30.0), 6),
    "counts": (_counts, Counts(200), 6),
    "laplace": (_laplace, Binary(), 5),
    "unknown_sd": (_unknown_sd, Box(-9.0, 9.0), 4),
    "negative_binomial": (_negative_binomial, Counts(60), 4),
    "softmax": (_softmax, Categories(3), 3),
    "groups": (_groups, Binary(), 3),
}
