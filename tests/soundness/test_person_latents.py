"""Persons with latents, drawn at random: their terms are integrals of NumPyro's joint density.

The integral is taken apart from the library: NumPyro's density of a model of one person, on a fine grid.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.distributions import biject_to
from numpyro.infer.util import compute_log_probs

from private_mcmc.domains import Ball, Binary, Box, Counts, Person, Rows
from private_mcmc.errors import UnsupportedModel
from private_mcmc.model import read

N, MOST = 12, 3
LATENTS: dict[str, Callable[[Any, Any], dist.Distribution]] = {
    "Normal": lambda tau, share: dist.Normal(0.4, tau),
    "Normal of known spread": lambda tau, share: dist.Normal(0.0, 0.6),
    "LogNormal": lambda tau, share: dist.LogNormal(-0.5, tau),
    "Gamma": lambda tau, share: dist.Gamma(1.5, 1.0 + tau),
    "Logistic": lambda tau, share: dist.Logistic(0.0, 0.3 * tau),
    "Laplace": lambda tau, share: dist.Laplace(0.2, 0.7 * tau),
    "Beta": lambda tau, share: dist.Beta(2.0, 1.0 + tau),
    "Bernoulli": lambda tau, share: dist.Bernoulli(share),
    "Bernoulli by logits": lambda tau, share: dist.Bernoulli(logits=0.5 - tau),
    "Categorical": lambda tau, share: dist.Categorical(jnp.array([0.2, 0.3, 0.5])),
}
OUTCOMES: dict[str, tuple[Any, Callable[[jax.Array], dist.Distribution]]] = {
    "Bernoulli": (Binary(), lambda eta: dist.Bernoulli(logits=eta)),
    "Bernoulli, probit": (Binary(), lambda eta: dist.Bernoulli(jax.scipy.special.ndtr(eta))),
    "Poisson": (Counts(6), lambda eta: dist.Poisson(jnp.exp(eta))),
    "negative binomial": (Counts(6), lambda eta: dist.NegativeBinomial2(jnp.exp(eta), 2.0)),
    "Normal": (Box(-2.0, 3.0), lambda eta: dist.Normal(eta, 1.2)),
    "StudentT": (Box(-2.0, 3.0), lambda eta: dist.StudentT(3.0, eta, 0.8)),
}
USES: dict[str, Callable[[jax.Array, jax.Array], jax.Array]] = {
    "intercept": lambda u, x: u,
    "slope": lambda u, x: u * x,
    "bent": lambda u, x: jnp.tanh(u) + 0.5 * u * x,
    "in a switch": lambda u, x: jnp.where(x > 0, u, -0.5 * u),
}


@dataclass(frozen=True)
class Drawn:
    """One model of the seed, with what it is made of."""

    outcome: str
    own: tuple[tuple[str, str], ...]
    scaled: bool

    @property
    def rows(self) -> Rows:
        return Rows(X=Ball(2.0, dim=2), y=OUTCOMES[self.outcome][0], person=Person(at_most=MOST))

    def __call__(self, X: Any, person: Any, persons: int, y: Any = None) -> None:
        w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
        tau = numpyro.sample("tau", dist.LogNormal(-0.5, 0.3))
        share = numpyro.sample("share", dist.Beta(2, 2))
        eta = X @ w
        with numpyro.plate("persons", persons):
            values = [
                numpyro.sample(f"u{k}", LATENTS[name](tau, share)) for k, (name, _) in enumerate(self.own)
            ]
            if self.scaled:
                values = [numpyro.deterministic("first", tau * values[0]), *values[1:]]
        for value, (_, use) in zip(values, self.own, strict=True):
            eta = eta + USES[use](value[person], X[:, 0])
        with numpyro.plate("rows", X.shape[0]):
            numpyro.sample("y", OUTCOMES[self.outcome][1](eta), obs=y)


def drawn(seed: int) -> Drawn:
    """One or two latents of a person; the first goes through all families, and outcomes, by turns."""
    rng = np.random.default_rng(seed)
    names, uses = list(LATENTS), list(USES)
    first = names[seed % len(names)]
    count = 1 + int(rng.random() < 0.5)
    own = [(first, uses[int(rng.integers(len(uses)))])]
    own += [(names[int(rng.integers(len(names)))], uses[int(rng.integers(len(uses)))])] * (count - 1)
    outcome = list(OUTCOMES)[(seed // len(names) + seed) % len(OUTCOMES)]
    return Drawn(outcome, tuple(own), bool(rng.random() < 0.3))


def points(fn: dist.Distribution, fine: int) -> tuple[jax.Array, jax.Array]:
    """Values of a latent, and the logs of what each stands for."""
    if fn.support.is_discrete:
        values = fn.enumerate_support().ravel()
        return values, jnp.zeros(len(values))
    line = jnp.linspace(-16.0, 16.0, fine)
    transform = biject_to(fn.support)
    values = transform(line)
    return values, transform.log_abs_det_jacobian(line, values) + jnp.log(line[1] - line[0])


def integral(model: Drawn, theta: Mapping[str, Any], rows: Mapping[str, np.ndarray]) -> float:
    """``−log ∫ p(rows, u | θ) du`` of one person, by NumPyro's joint density."""
    count = len(rows["y"])
    public = {"person": jnp.zeros(count, int), "persons": 1}
    fns = [LATENTS[name](theta["tau"], theta["share"]) for name, _ in model.own]
    grids = [points(fn, 2001 if len(fns) == 1 else 401) for fn in fns]
    values = [part.ravel() for part in jnp.meshgrid(*(grid[0] for grid in grids), indexing="ij")]
    steps = sum(part.ravel() for part in jnp.meshgrid(*(grid[1] for grid in grids), indexing="ij"))

    def joint(*own: jax.Array) -> jax.Array:
        given = {f"u{k}": value[None] for k, value in enumerate(own)}
        found, _ = compute_log_probs(
            handlers.substitute(model, data={**theta, **given}), (), {**rows, **public}, {}
        )
        return sum(value for name, value in found.items() if name not in theta)

    return -float(jax.nn.logsumexp(steps + jax.jit(jax.vmap(joint))(*values)))


def check(seed: int) -> bool:
    """Whether a model was read; its terms are compared at two places for persons with 1 and 3 rows."""
    model, rng = drawn(seed), np.random.default_rng(seed)
    with jax.enable_x64(True):
        try:
            found = read(model, model.rows, n=N, model_args={"persons": N})
        except UnsupportedModel:
            return False
        people = model.rows.persons.project(model.rows.persons.synthetic(seed, 2))
        for index, kept in ((0, 1), (1, MOST)):
            person = {name: np.asarray(column[index]) for name, column in people.items()}
            person["rows of the person"] = (np.arange(MOST) < kept).astype(int)
            rows = {name: person[name][:kept] for name in ("X", "y")}
            theta = 0.5 * rng.normal(size=found.dim)
            exact = integral(model, dict(jax.jit(found.constrain)(jnp.asarray(theta))), rows)
            ours = float(jax.jit(found.row_loss)(jnp.asarray(theta), person))
            # How far the library's sum may be from the integral that it stands for: accuracy, not privacy.
            # Laplace's density has its kink between two points of the grid.
            far = 1e-2 if any(name == "Laplace" for name, _ in model.own) else 5e-3
            assert ours == pytest.approx(exact, abs=far, rel=2e-3), (seed, model, theta, rows)
            # A person whose gradient is no number counts for nothing.
            assert np.isfinite(jax.jit(jax.grad(found.row_loss))(jnp.asarray(theta), person)).all(), seed
    return True


@pytest.mark.long
def test_a_persons_term_is_the_integral_of_numpyros_density():
    """Of a Gamma latent, whose grid reaches to rates that overflow."""
    assert check(13)


@pytest.mark.long
@pytest.mark.parametrize("start", range(0, 30, 10))
def test_persons_terms_of_many_models_are_integrals_of_numpyros_density(start):
    """Every family of latents with three outcomes."""
    assert sum(map(check, range(start, start + 10))) >= 5
