"""Small NumPyro models that several test files share, and drivers of short runs."""

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

import private_mcmc as pmc


def declared(kernel, rows, **changes):
    """A driver of a run whose every state is released."""
    usual = {"target": pmc.Target(9.0, 1e-6), "release": "path", "num_steps": 20}
    usual |= {"guarantee": "run", "progress_bar": False}
    return pmc.PrivateMCMC(kernel, rows=rows, **usual | changes)


def observed(rows, law, y, **plate):
    """An outcome ``y`` of each of so many rows as ``rows`` has."""
    with numpyro.plate("rows", rows.shape[0], **plate):
        numpyro.sample("y", law, obs=y)


def logistic(X, y=None):
    w = numpyro.sample("w", dist.Normal(0, 2).expand([X.shape[1]]).to_event(1))
    observed(X, dist.Bernoulli(logits=X @ w), y)


def two_normals(y=None, ordered=False, sd=None):
    """A mixture whose components change places, unless they are ordered."""
    mean = dist.Normal(0, 5).expand([2]).to_event(1)
    if ordered:
        mean = dist.TransformedDistribution(mean, dist.transforms.OrderedTransform())
    share, mean = numpyro.sample("share", dist.Beta(1, 1)), numpyro.sample("mean", mean)
    sd = sd or numpyro.sample("sd", dist.HalfNormal(2.0).expand([2]).to_event(1))
    shares = dist.Categorical(jnp.stack([share, 1 - share]))
    observed(y, dist.MixtureSameFamily(shares, dist.Normal(mean, sd)), y)


def bent(X, y=None):
    """A regression through tanh: its rows have no affine predictor."""
    w = numpyro.sample("w", dist.Normal(0, 1).expand([X.shape[1]]).to_event(1))
    b = numpyro.sample("b", dist.Normal(0, 1))
    observed(X, dist.Normal(jnp.tanh(X @ w) * b, 0.5), y)


def normal_mean(y=None):
    """y_i ~ N(mu, 1), mu ~ N(0, 1): the posterior of n rows has precision n + 1."""
    mu = numpyro.sample("mu", dist.Normal(0, 1))
    observed(y, dist.Normal(mu, 1.0), y)


def linear(X, y=None):
    """y_i ~ N(x_i w, 1), w ~ N(0, I)."""
    w = numpyro.sample("w", dist.Normal(0, 1).expand([X.shape[1]]).to_event(1))
    observed(X, dist.Normal(X @ w, 1.0), y)


def flat_prior(X, y=None):
    flat = dist.ImproperUniform(dist.constraints.real_vector, (), event_shape=(X.shape[1],))
    w = numpyro.sample("w", flat)
    observed(X, dist.Bernoulli(logits=X @ w), y)


def outcomes(prior, law):
    """A model whose outcomes ``y`` have the law ``law(latent)``; ``prior()`` is the latent's."""

    def model(y=None):
        observed(y, law(numpyro.sample("latent", prior())), y)

    return model


def outcomes_by(prior, law):
    """As :func:`outcomes`, with a column ``x``: ``law(latent, x)``."""

    def model(x, y=None):
        observed(x, law(numpyro.sample("latent", prior()), x), y)

    return model
