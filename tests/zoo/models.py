"""NumPyro models of the zoo that are no regression of one affine predictor."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro import handlers

Model = Callable[..., None]


def weights(size: int, sd: float, name: str = "w") -> Any:
    """Independent Normal latents."""
    return numpyro.sample(name, dist.Normal(0, sd).expand([size]).to_event(1))


def observe(likelihood: Any, y: Any, **columns: Any) -> None:
    """One outcome of every row."""
    with numpyro.plate("rows", len(next(iter(columns.values()), y))):
        numpyro.sample("y", likelihood, obs=y)


def regression(likelihood: Callable[[Any], Any], sd: float = 1.0, prior: Any = None) -> Model:
    """Rows of one affine predictor; weights are Normal, or of ``prior``."""

    def model(X: Any, y: Any = None) -> None:
        if prior is None:
            w = weights(X.shape[1], sd)
        else:
            w = numpyro.sample("w", prior.expand([X.shape[1]]).to_event(1))
        observe(likelihood(X @ w), y, X=X)

    return model


def one_number(likelihood: Callable[[Any], Any], prior: Any) -> Model:
    """All rows are drawn from one law, whose parameter is sampled."""

    def model(y: Any = None) -> None:
        observe(likelihood(numpyro.sample("theta", prior)), y)

    return model


def logits(eta: Any) -> Any:
    return dist.Bernoulli(logits=eta)


def softmax(X: Any, y: Any = None, sd: float = 1.0) -> None:
    """Three classes, one weight vector each."""
    w = numpyro.sample("w", dist.Normal(0, sd).expand([X.shape[1], 3]).to_event(2))
    observe(dist.Categorical(logits=X @ w), y, X=X)


def with_intercept(X: Any, y: Any = None) -> None:
    w, b = weights(X.shape[1], 0.2), numpyro.sample("b", dist.Normal(0, 0.2))
    observe(logits(X @ w + b), y, X=X)


def weighted(X: Any, weight: Any, y: Any = None) -> None:
    """Rows with survey weights in [0, 1], a column of their own."""
    w = weights(X.shape[1], 2.0)
    with handlers.scale(scale=weight):
        observe(logits(X @ w), y, X=X)


def missing(X: Any, seen: Any, y: Any = None) -> None:
    """Outcomes that may be missing, masked row by row."""
    observe(logits(X @ weights(X.shape[1], 2.0)).mask(seen == 1), y, X=X)


def slope(x: Any, y: Any = None, sd: float = 0.1) -> None:
    """Heller and Fetaya's regression: one slope, normal errors of known scale 1."""
    observe(dist.Normal(numpyro.sample("theta", dist.Normal(0, sd)) * x, 1.0), y, x=x)


def latent_scale(X: Any, y: Any = None) -> None:
    """Normal errors of unknown scale."""
    w, s = weights(X.shape[1], 1.0), numpyro.sample("s", dist.HalfNormal(1.0))
    observe(dist.Normal(X @ w, s), y, X=X)


def mean_and_scale(y: Any = None) -> None:
    mu, s = numpyro.sample("mu", dist.Normal(0, 1)), numpyro.sample("s", dist.HalfNormal(1.0))
    observe(dist.Normal(mu, s), y)


def trials_by_row(X: Any, trials: Any, y: Any = None) -> None:
    """Successes among a number of trials that is a column of its own."""
    observe(dist.Binomial(trials, logits=X @ weights(X.shape[1], 1.0)), y, X=X)


def unknown_dispersion(X: Any, y: Any = None) -> None:
    w, k = weights(X.shape[1], 0.1), numpyro.sample("k", dist.LogNormal(0.0, 0.1))
    observe(dist.NegativeBinomial2(jnp.exp(X @ w), k), y, X=X)


def unknown_cuts(X: Any, y: Any = None) -> None:
    """Four ordered classes with unknown cut points."""
    w, base = weights(X.shape[1], 0.1), dist.Normal(0, 0.1).expand([3]).to_event(1)
    ordered = dist.TransformedDistribution(base, dist.transforms.OrderedTransform())
    observe(dist.OrderedLogistic(X @ w, numpyro.sample("cuts", ordered)), y, X=X)


def mixture(shares: Any, means: Any) -> Any:
    return dist.MixtureSameFamily(dist.Categorical(probs=shares), dist.Normal(means, 1.0))


def mixture_weight(y: Any = None) -> None:
    """The share of one of two known components."""
    p = numpyro.sample("p", dist.Uniform(0.1, 0.9))
    observe(mixture(jnp.stack([1 - p, p]), jnp.array([-0.25, 0.25])), y)


def mixture_means(y: Any = None) -> None:
    observe(mixture(jnp.array([0.3, 0.7]), weights(2, 1.0, "mu")), y)


def _effects(law: Any, name: str = "b") -> Any:
    with numpyro.plate(f"of {name}", 4):
        return numpyro.sample(name, law)


def groups_known_spread(group: Any, y: Any = None) -> None:
    observe(logits(_effects(dist.Normal(0, 0.2))[group]), y, group=group)


def groups_around_a_mean(group: Any, y: Any = None) -> None:
    """Known spread: jointly Normal, whatever way it is centred."""
    mean = numpyro.sample("mean", dist.Normal(0, 0.2))
    observe(logits(_effects(dist.Normal(mean, 0.2))[group]), y, group=group)


def groups_centred(group: Any, y: Any = None) -> None:
    mu, tau = numpyro.sample("mu", dist.Normal(0, 0.1)), numpyro.sample("tau", dist.HalfNormal(0.1))
    observe(logits(_effects(dist.Normal(mu, tau))[group]), y, group=group)


def groups_noncentred(group: Any, y: Any = None) -> None:
    """The same: the predictor is then no longer affine."""
    mu, tau = numpyro.sample("mu", dist.Normal(0, 0.1)), numpyro.sample("tau", dist.HalfNormal(0.1))
    observe(logits((mu + tau * _effects(dist.Normal(0, 1), "z"))[group]), y, group=group)


def groups_with_slopes(x: Any, group: Any, y: Any = None) -> None:
    a, s = _effects(dist.Normal(0, 0.2)), _effects(dist.Normal(0, 0.2), "s")
    observe(logits(a[group] + s[group] * x), y, x=x)


def public_curve(cell: Any, y: Any = None) -> None:
    """A function on 50 public points, of which each row says its own: rows of a public matrix."""
    observe(logits((jnp.ones((50, 1)) @ weights(1, 0.2))[cell]), y, cell=cell)


def cubic(x: Any, y: Any = None) -> None:
    w = weights(3, 0.2)
    observe(logits(w[0] * x**3 + w[1] * x**2 + w[2] * x), y, x=x)


def bradley_terry(home: Any, away: Any, y: Any = None) -> None:
    """Who beats whom, by the difference of two strengths."""
    strength = weights(6, 0.1)
    observe(logits(strength[home] - strength[away]), y, home=home)


def rasch(person: Any, item: Any, y: Any = None) -> None:
    ability, difficulty = weights(10, 0.1, "ability"), weights(5, 0.1, "difficulty")
    observe(logits(ability[person] - difficulty[item]), y, person=person)


def discriminating(person: Any, item: Any, y: Any = None) -> None:
    """A product of latents."""
    ability = weights(10, 0.1, "ability")
    slope = numpyro.sample("slope", dist.LogNormal(0, 0.1).expand([5]).to_event(1))
    observe(logits(slope[item] * ability[person]), y, person=person)


def network(X: Any, y: Any = None) -> None:
    """One hidden layer of three units, logistic output."""
    a = numpyro.sample("a", dist.Normal(0, 1).expand([X.shape[1], 3]).to_event(2))
    observe(logits(jnp.tanh(X @ a) @ weights(3, 1.0, "c")), y, X=X)
