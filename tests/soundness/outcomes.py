"""Productions of likelihoods: a family, its parametrisation, its link, and the domain of its outcome."""

from __future__ import annotations

from collections.abc import Callable

from tests.soundness.draft import Draft, Production
from tests.soundness.latents import positive, real
from tests.soundness.predictors import matrix, predictor

# A rate or a positive mean, made of a predictor.
_RATES: dict[str, str] = {
    "exp": "jnp.exp({eta})",
    "softplus": "jax.nn.softplus({eta})",
    "exp of minus": "jnp.exp(-({eta}))",
    "exp with exposure": "{exposure} * jnp.exp({eta})",
    "exp with a factor": "2.0 * jnp.exp({eta})",
    "exp divided": "3.0 / jnp.exp({eta})",
    "square": "0.1 + ({eta}) ** 2",
}
# A probability, made of a predictor.
_PROBABILITIES: dict[str, str] = {
    "sigmoid": "jax.nn.sigmoid({eta})",
    "sigmoid spelled out": "1 / (1 + jnp.exp(-({eta})))",
    "probit": "jax.scipy.special.ndtr({eta})",
    "probit by a distribution": "dist.Normal(0, 1).cdf({eta})",
    "cloglog": "-jnp.expm1(-jnp.exp({eta}))",
    "bounded sigmoid": "0.3 + 0.4 * jax.nn.sigmoid({eta})",
    "affine probability": "jnp.clip(0.5 + 0.05 * ({eta}), 0.01, 0.99)",
    "sigmoid twice": "jax.nn.sigmoid(jax.nn.sigmoid({eta}))",
    "second of a softmax": "jax.nn.softmax(jnp.stack([jnp.zeros_like({eta}), {eta}], axis=-1))[..., 1]",
}
# A log-odds, made of a predictor.
_LOGITS: dict[str, str] = {
    "logits": "{eta}",
    "doubled logits": "2 * ({eta})",
    "logits that are probabilities": "jax.nn.sigmoid({eta})",
    "logits that are rates": "jnp.exp({eta})",
    "log-sigmoid logits": "jax.nn.log_sigmoid({eta})",
}
# Parameters of three categories, made of a matrix of predictors.
_SIMPLICES: dict[str, str] = {
    "logits": "logits={eta}",
    "log-softmax as logits": "logits=jax.nn.log_softmax({eta})",
    "softmax as logits": "logits=jax.nn.softmax({eta})",
    "doubled logits": "logits=2 * ({eta})",
    "softplus as logits": "logits=jax.nn.softplus({eta})",
    "softmax": "probs=jax.nn.softmax({eta})",
    "bounded softmax": "probs=0.1 + 0.7 * jax.nn.softmax({eta})",
    "affine": "probs=0.3 + 0.02 * ({eta})",
    "affine of sum one": "probs=1 / 3 + 0.02 * (({eta}) - ({eta}).mean(-1, keepdims=True))",
    "softmax twice": "probs=jax.nn.softmax(jax.nn.softmax({eta}))",
    "softmax over rows": "probs=jax.nn.softmax({eta}, axis=0)",
}


def _fill(d: Draft, template: str) -> str:
    if "{exposure}" in template:
        d.column("exposure", "Box(0.5, 2.0)")
    return template.format(eta=d.let("eta", predictor(d)), exposure="exposure")


def _filled(template: str) -> Production:
    return lambda d: _fill(d, template)


RATES = {name: _filled(template) for name, template in _RATES.items()}
PROBABILITIES = {name: _filled(template) for name, template in _PROBABILITIES.items()}
LOGITS = {name: _filled(template) for name, template in _LOGITS.items()}


def rate(d: Draft) -> str:
    """A positive number for each row; ``exp`` more often than not."""
    return d.take(RATES, "exp" if d.chance(0.5) else None)


def probability(d: Draft) -> str:
    """A probability for each row."""
    return d.take(PROBABILITIES)


def logits(d: Draft) -> str:
    """A log-odds for each row."""
    return d.take(LOGITS, "logits" if d.chance(0.5) else None)


def location(d: Draft) -> str:
    """A real number for each row."""
    return d.let("eta", predictor(d))


def noise(d: Draft) -> str:
    """A scale: public, of the row, or latent."""
    if d.wild > 0 and d.chance(0.5):
        d.wild -= 1
        return positive(d)
    return d.column("error", "Box(0.5, 2.0)") if d.chance(0.2) else d.pick("0.5", "1.5", "1", "2.0")


def _observed(domain: str, distribution: Callable[[Draft], str]) -> Production:
    """The distribution of the column ``y`` of this domain."""

    def production(d: Draft) -> str:
        d.column("y", domain)
        return distribution(d)

    return production


def _bernoulli(parameter: str, template: str) -> Production:
    return _observed("Binary()", lambda d: f"dist.Bernoulli({parameter}={_fill(d, template)})")


def _categorical(template: str) -> Production:
    return _observed(
        "Categories(3)", lambda d: f"dist.Categorical({template.format(eta=d.let('etas', matrix(d)))})"
    )


def _multinomial(template: str) -> Production:
    def production(d: Draft) -> str:
        parts = [d.column(f"y{index}", "Counts(2)") for index in range(3)]
        d.write(f"y = jnp.stack([{', '.join(parts)}], axis=-1)")
        total = d.pick("total_count={}", "total_count={}, total_count_max=6").format(" + ".join(parts))
        return f"dist.Multinomial({template.format(eta=d.let('etas', matrix(d)))}, {total})"

    return production


_REAL, _POSITIVE, _COUNT = "Box(-2.0, 3.0)", "Box(0.1, 4.0)", "Counts(6)"

OUTCOMES: dict[str, Production] = {
    **{f"Bernoulli: {name}": _bernoulli("logits", template) for name, template in _LOGITS.items()},
    **{f"Bernoulli: {name}": _bernoulli("probs", template) for name, template in _PROBABILITIES.items()},
    **{f"Categorical: {name}": _categorical(template) for name, template in _SIMPLICES.items()},
    **{f"Multinomial: {name}": _multinomial(template) for name, template in _SIMPLICES.items()},
    "Binomial(logits)": _observed("Counts(4)", lambda d: f"dist.Binomial(4, logits={logits(d)})"),
    "Binomial(probs)": _observed("Counts(4)", lambda d: f"dist.Binomial(5, probs={probability(d)})"),
    "Binomial(trials of the row)": _observed(
        "Counts(2)", lambda d: f"dist.Binomial(2 + {d.column('trials', 'Counts(3)')}, logits={logits(d)})"
    ),
    "Geometric(logits)": _observed(_COUNT, lambda d: f"dist.Geometric(logits={logits(d)})"),
    "Geometric(probs)": _observed(_COUNT, lambda d: f"dist.Geometric(probs={probability(d)})"),
    "Poisson": _observed(_COUNT, lambda d: f"dist.Poisson({rate(d)})"),
    "NegativeBinomial2": _observed(_COUNT, lambda d: f"dist.NegativeBinomial2({rate(d)}, {noise(d)})"),
    "NegativeBinomial(logits)": _observed(
        _COUNT, lambda d: f"dist.NegativeBinomial(3.0, logits={logits(d)})"
    ),
    "NegativeBinomial(probs)": _observed(
        _COUNT, lambda d: f"dist.NegativeBinomial(3.0, probs={probability(d)})"
    ),
    "GammaPoisson": _observed(_COUNT, lambda d: f"dist.GammaPoisson({d.shape()}, {rate(d)})"),
    "BetaBinomial": _observed("Counts(4)", lambda d: _beta_binomial(d)),
    "ZeroInflatedPoisson": _observed(_COUNT, lambda d: f"dist.ZeroInflatedPoisson(0.3, {rate(d)})"),
    "ZeroInflatedPoisson(latent gate)": _observed(
        _COUNT, lambda d: f"dist.ZeroInflatedPoisson({d.latent('gate', 'dist.Beta(2.0, 3.0)')}, {rate(d)})"
    ),
    "ZeroInflatedNegativeBinomial2": _observed(
        _COUNT, lambda d: f"dist.ZeroInflatedNegativeBinomial2({rate(d)}, 2.0, gate=0.3)"
    ),
    "ZeroInflatedDistribution(gate_logits)": _observed(
        _COUNT, lambda d: f"dist.ZeroInflatedDistribution(dist.Poisson({rate(d)}), gate_logits=-0.4)"
    ),
    "OrderedLogistic": _observed(
        "Categories(3)", lambda d: f"dist.OrderedLogistic({location(d)}, {_cutpoints(d)})"
    ),
    "ordered probit": _observed("Categories(3)", lambda d: _ordered_probit(d)),
    "Normal outcome": _observed(_REAL, lambda d: f"dist.Normal({location(d)}, {noise(d)})"),
    "Normal scale": _observed(_REAL, lambda d: f"dist.Normal(0.3, {rate(d)})"),
    "LogNormal outcome": _observed(_POSITIVE, lambda d: f"dist.LogNormal({location(d)}, {noise(d)})"),
    "StudentT outcome": _observed(_REAL, lambda d: f"dist.StudentT({d.shape()}, {location(d)}, {noise(d)})"),
    "Cauchy outcome": _observed(_REAL, lambda d: f"dist.Cauchy({location(d)}, {noise(d)})"),
    "Laplace outcome": _observed(_REAL, lambda d: f"dist.Laplace({location(d)}, {noise(d)})"),
    "Logistic outcome": _observed(_REAL, lambda d: f"dist.Logistic({location(d)}, {noise(d)})"),
    "Gumbel outcome": _observed(_REAL, lambda d: f"dist.Gumbel({location(d)}, {noise(d)})"),
    "SoftLaplace outcome": _observed(_REAL, lambda d: f"dist.SoftLaplace({location(d)}, {noise(d)})"),
    "AsymmetricLaplaceQuantile": _observed(
        _REAL, lambda d: f"dist.AsymmetricLaplaceQuantile({location(d)}, {noise(d)}, quantile=0.8)"
    ),
    "truncated Normal outcome": _observed(
        "Box(-1.0, 2.0)",
        lambda d: (
            f"dist.TruncatedNormal({location(d)}, {noise(d)}, "
            f"{d.pick('low=-1.0', 'high=2.0', 'low=-1.0, high=2.0')})"
        ),
    ),
    "Gamma(mean)": _observed(_POSITIVE, lambda d: f"dist.Gamma({(k := d.shape())}, {k} / {rate(d)})"),
    "Gamma(rate)": _observed(_POSITIVE, lambda d: f"dist.Gamma({d.shape()}, {rate(d)})"),
    "Exponential outcome": _observed(_POSITIVE, lambda d: f"dist.Exponential({rate(d)})"),
    "InverseGamma outcome": _observed(_POSITIVE, lambda d: f"dist.InverseGamma({d.shape()}, {rate(d)})"),
    "Weibull outcome": _observed(_POSITIVE, lambda d: f"dist.Weibull({rate(d)}, {d.shape()})"),
    "HalfNormal outcome": _observed(_POSITIVE, lambda d: f"dist.HalfNormal({rate(d)})"),
    "Pareto outcome": _observed("Box(1.5, 4.0)", lambda d: f"dist.Pareto(1.0, {rate(d)})"),
    "Beta outcome": _observed(
        "Box(0.05, 0.95)", lambda d: f"dist.BetaProportion({probability(d)}, {d.shape()})"
    ),
    "Beta(latent)": _observed("Box(0.05, 0.95)", lambda d: f"dist.Beta({rate(d)}, {d.shape()})"),
    "mixture of Normals": _observed(
        _REAL,
        lambda d: (
            "dist.MixtureSameFamily(dist.Categorical(probs=jnp.array([0.3, 0.7])), "
            f"dist.Normal(({location(d)})[..., None] + jnp.array([0.0, 1.0]), {d.pick('0.8', '1.2')}))"
        ),
    ),
    "mixture of families": _observed(
        _REAL,
        lambda d: (
            "dist.MixtureGeneral(dist.Categorical(probs=jnp.array([0.3, 0.7])), "
            f"[dist.Normal({location(d)}, 1.0), dist.StudentT(3.0, 0.2, 2.0)])"
        ),
    ),
    "a latent itself": _observed("Binary()", lambda d: f"dist.Bernoulli(probs={_latent_share(d)})"),
    "a latent mean": _observed(_REAL, lambda d: f"dist.Normal({d.latent('m', real(d))}, {noise(d)})"),
    "a latent rate": _observed(_COUNT, lambda d: f"dist.Poisson({positive(d)})"),
}


def _beta_binomial(d: Draft) -> str:
    share = d.let("p", probability(d))
    return f"dist.BetaBinomial(2 * {share}, 2 * (1 - {share}), 4)"


def _latent_share(d: Draft) -> str:
    return d.latent("share", d.pick("dist.Beta(2.0, 3.0)", "dist.Beta(0.5, 0.5)", "dist.Uniform(0.0, 1.0)"))


def _cutpoints(d: Draft) -> str:
    if d.wild > 0 and d.chance(0.5):
        d.wild -= 1
        return d.latent(
            "cuts",
            "dist.TransformedDistribution(dist.Normal(0.0, 1.0).expand([2]).to_event(1), "
            "dist.transforms.OrderedTransform())",
        )
    return "jnp.array([-1.0, 0.5])"


def _ordered_probit(d: Draft) -> str:
    below = d.let("below", f"jax.scipy.special.ndtr({_cutpoints(d)} - ({location(d)})[..., None])")
    edges = f"jnp.zeros_like({below}[..., :1]), {below}, jnp.ones_like({below}[..., :1])"
    return f"dist.Categorical(probs=jnp.diff(jnp.concatenate([{edges}], axis=-1)))"


def outcome(d: Draft) -> str:
    """The distribution of ``y``, a variable of the model."""
    return d.take(OUTCOMES, d.outcome)


# A certificate of a posterior needs rows of bounded influence, or a conjugate family.
_UNBOUNDED = ("Normal", "Gumbel", "Gamma(", "Exponential", "Inverse", "Weibull", "Half", "Pareto", "Beta")
CERTIFIABLE = [
    name
    for name in OUTCOMES
    if not name.startswith(("Poisson", "ZeroInflated", "LogNormal", "mixture of families", *_UNBOUNDED))
]
