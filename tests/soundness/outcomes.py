"""Productions of likelihoods: a family, its parametrisation, its link, and the domain of its outcome."""

from tests.soundness.draft import PARTS, Draft, Production
from tests.soundness.latents import positive
from tests.soundness.predictors import matrix, predictor

# A rate or a positive mean, made of a predictor.
RATES: dict[str, Production] = {
    "exp": "jnp.exp($eta)",
    "softplus": "jax.nn.softplus($eta)",
    "exp of minus": "jnp.exp(-($eta))",
    "exp with exposure": "$exposure * jnp.exp($eta)",
    "exp with a factor": "2.0 * jnp.exp($eta)",
    "exp divided": "3.0 / jnp.exp($eta)",
    "square": "0.1 + ($eta) ** 2",
}
# A probability, made of a predictor.
PROBABILITIES: dict[str, Production] = {
    "sigmoid": "jax.nn.sigmoid($eta)",
    "sigmoid spelled out": "1 / (1 + jnp.exp(-($eta)))",
    "probit": "jax.scipy.special.ndtr($eta)",
    "probit by a distribution": "dist.Normal(0, 1).cdf($eta)",
    "cloglog": "-jnp.expm1(-jnp.exp($eta))",
    "bounded sigmoid": "0.3 + 0.4 * jax.nn.sigmoid($eta)",
    "affine probability": "jnp.clip(0.5 + 0.05 * ($eta), 0.01, 0.99)",
    "sigmoid twice": "jax.nn.sigmoid(jax.nn.sigmoid($eta))",
    "second of a softmax": "eta : $eta\n"
    "jax.nn.softmax(jnp.stack([jnp.zeros_like($eta), $eta], axis=-1))[..., 1]",
}
# A log-odds, made of a predictor.
LOGITS: dict[str, Production] = {
    "logits": "$eta",
    "doubled logits": "2 * ($eta)",
    "logits that are probabilities": "jax.nn.sigmoid($eta)",
    "logits that are rates": "jnp.exp($eta)",
    "log-sigmoid logits": "jax.nn.log_sigmoid($eta)",
}
# Parameters of three categories, made of a matrix of predictors.
_SIMPLICES = {
    "logits": "logits=$etas",
    "log-softmax as logits": "logits=jax.nn.log_softmax($etas)",
    "softmax as logits": "logits=jax.nn.softmax($etas)",
    "doubled logits": "logits=2 * ($etas)",
    "softplus as logits": "logits=jax.nn.softplus($etas)",
    "softmax": "probs=jax.nn.softmax($etas)",
    "bounded softmax": "probs=0.1 + 0.7 * jax.nn.softmax($etas)",
    "affine": "probs=0.3 + 0.02 * ($etas)",
    "affine of sum one": "probs=1 / 3 + 0.02 * (($etas) - ($etas).mean(-1, keepdims=True))",
    "softmax twice": "probs=jax.nn.softmax(jax.nn.softmax($etas))",
    "softmax over rows": "probs=jax.nn.softmax($etas, axis=0)",
}


def location(d: Draft) -> str:
    """A real number for each row."""
    return d.let("eta", predictor(d))


def logits(d: Draft) -> str:
    """A log-odds for each row, itself more often than not."""
    return d.take(LOGITS, "logits" if d.chance(0.5) else None)


def _noise(d: Draft) -> str:
    """A scale: public, of the row, or latent."""
    if d.wild > 0 and d.chance(0.5):
        d.wild -= 1
        return positive(d)
    return d.column("error", "Box(0.5, 2.0)") if d.chance(0.2) else d.pick("0.5", "1.5", "1", "2.0")


def _cutpoints(d: Draft) -> str:
    if d.wild > 0 and d.chance(0.5):
        d.wild -= 1
        return d.fill(
            "cuts ~ dist.TransformedDistribution(dist.Normal(0.0, 1.0).expand([2]).to_event(1), "
            "dist.transforms.OrderedTransform())"
        )
    return "jnp.array([-1.0, 0.5])"


PARTS |= {
    "eta": location,
    "exposure": lambda d: d.column("exposure", "Box(0.5, 2.0)"),
    "rate": lambda d: d.take(RATES, "exp" if d.chance(0.5) else None),
    "probability": lambda d: d.take(PROBABILITIES),
    "logits": logits,
    "noise": _noise,
    "cuts": _cutpoints,
    "trials": lambda d: d.column("trials", "Counts(3)"),
}


def _observed(domain: str, text: str) -> Production:
    """The distribution of the column ``y`` of this domain."""

    def production(d: Draft) -> str:
        d.column("y", domain)
        return d.fill(text)

    return production


def _of(domain: str, **families: str) -> dict[str, Production]:
    """``dist.Family(arguments)``, by the family's name."""
    return {
        f"{name} outcome": _observed(domain, f"dist.{name}({arguments})")
        for name, arguments in families.items()
    }


def _bernoulli(parameter: str, of: dict[str, Production]) -> dict[str, Production]:
    def made(text: Production) -> Production:
        *before, last = str(text).splitlines()
        return _observed("Binary()", "\n".join([*before, f"dist.Bernoulli({parameter}={last})"]))

    return {f"Bernoulli: {name}": made(text) for name, text in of.items()}


def _categorical(text: str) -> Production:
    def production(d: Draft) -> str:
        d.column("y", "Categories(3)")
        return d.fill(f"dist.Categorical({text})", etas=d.let("etas", matrix(d)))

    return production


def _multinomial(text: str) -> Production:
    def production(d: Draft) -> str:
        parts = [d.column(f"y{index}", "Counts(2)") for index in range(3)]
        d.write(f"y = jnp.stack([{', '.join(parts)}], axis=-1)")
        total = d.pick("total_count={}", "total_count={}, total_count_max=6").format(" + ".join(parts))
        return d.fill(f"dist.Multinomial({text}, {total})", etas=d.let("etas", matrix(d)))

    return production


_REAL, _POSITIVE, _COUNT, _SHARE = "Box(-2.0, 3.0)", "Box(0.1, 4.0)", "Counts(6)", "Box(0.05, 0.95)"
_SUCCESSES = {
    "Binomial(logits)": ("Counts(4)", "dist.Binomial(4, logits=$logits)"),
    "Binomial(probs)": ("Counts(4)", "dist.Binomial(5, probs=$probability)"),
    "Binomial(trials of the row)": ("Counts(2)", "dist.Binomial(2 + $trials, logits=$logits)"),
}
_COUNTS = {
    "Geometric(logits)": "dist.Geometric(logits=$logits)",
    "Geometric(probs)": "dist.Geometric(probs=$probability)",
    "Poisson": "dist.Poisson($rate)",
    "NegativeBinomial2": "dist.NegativeBinomial2($rate, $noise)",
    "NegativeBinomial(logits)": "dist.NegativeBinomial(3.0, logits=$logits)",
    "NegativeBinomial(probs)": "dist.NegativeBinomial(3.0, probs=$probability)",
    "GammaPoisson": "dist.GammaPoisson($shape, $rate)",
}
_INFLATED = {
    "ZeroInflatedPoisson": "dist.ZeroInflatedPoisson(0.3, $rate)",
    "ZeroInflatedPoisson(latent gate)": "gate ~ dist.Beta(2.0, 3.0)\ndist.ZeroInflatedPoisson($gate, $rate)",
    "ZeroInflatedNegativeBinomial2": "dist.ZeroInflatedNegativeBinomial2($rate, 2.0, gate=0.3)",
    "ZeroInflatedDistribution(gate_logits)": (
        "dist.ZeroInflatedDistribution(dist.Poisson($rate), gate_logits=-0.4)"
    ),
}
_ORDERED = {
    "OrderedLogistic": "dist.OrderedLogistic($eta, $cuts)",
    "ordered probit": "below = jax.scipy.special.ndtr($cuts - ($eta)[..., None])\n"
    "dist.Categorical(probs=jnp.diff(jnp.concatenate([jnp.zeros_like($below[..., :1]), $below, "
    "jnp.ones_like($below[..., :1])], axis=-1)))",
}
_MIXED = "dist.Categorical(probs=jnp.array([0.3, 0.7]))"

OUTCOMES: dict[str, Production] = {
    **_bernoulli("logits", LOGITS),
    **_bernoulli("probs", PROBABILITIES),
    **{f"Categorical: {name}": _categorical(text) for name, text in _SIMPLICES.items()},
    **{f"Multinomial: {name}": _multinomial(text) for name, text in _SIMPLICES.items()},
    **{name: _observed(*each) for name, each in _SUCCESSES.items()},
    **{name: _observed(_COUNT, text) for name, text in _COUNTS.items()},
    "BetaBinomial": _observed("Counts(4)", "p = $probability\ndist.BetaBinomial(2 * $p, 2 * (1 - $p), 4)"),
    **{name: _observed(_COUNT, text) for name, text in _INFLATED.items()},
    **{name: _observed("Categories(3)", text) for name, text in _ORDERED.items()},
    **_of(_REAL, Normal="$eta, $noise"),
    "Normal scale": _observed(_REAL, "dist.Normal(0.3, $rate)"),
    **_of(_POSITIVE, LogNormal="$eta, $noise"),
    **_of(_REAL, StudentT="$shape, $eta, $noise"),
    **_of(_REAL, **dict.fromkeys(("Cauchy", "Laplace", "Logistic", "Gumbel", "SoftLaplace"), "$eta, $noise")),
    "AsymmetricLaplaceQuantile": _observed(
        _REAL, "dist.AsymmetricLaplaceQuantile($eta, $noise, quantile=0.8)"
    ),
    "truncated Normal outcome": _observed(
        "Box(-1.0, 2.0)", "dist.TruncatedNormal($eta, $noise, $(low=-1.0|high=2.0|low=-1.0, high=2.0))"
    ),
    "Gamma(mean)": _observed(_POSITIVE, "k : $shape\ndist.Gamma($k, $k / $rate)"),
    "Gamma(rate)": _observed(_POSITIVE, "dist.Gamma($shape, $rate)"),
    **_of(_POSITIVE, Exponential="$rate", InverseGamma="$shape, $rate", Weibull="$rate, $shape"),
    **_of(_POSITIVE, HalfNormal="$rate"),
    **_of("Box(1.5, 4.0)", Pareto="1.0, $rate"),
    "Beta outcome": _observed(_SHARE, "dist.BetaProportion($probability, $shape)"),
    "Beta(latent)": _observed(_SHARE, "dist.Beta($rate, $shape)"),
    "mixture of Normals": _observed(
        _REAL,
        f"dist.MixtureSameFamily({_MIXED}, "
        "dist.Normal(($eta)[..., None] + jnp.array([0.0, 1.0]), $(0.8|1.2)))",
    ),
    "mixture of families": _observed(
        _REAL, f"dist.MixtureGeneral({_MIXED}, [dist.Normal($eta, 1.0), dist.StudentT(3.0, 0.2, 2.0)])"
    ),
    "a latent itself": _observed("Binary()", "dist.Bernoulli(probs=$share)"),
    "a latent mean": _observed(_REAL, "m ~ $real\ndist.Normal($m, $noise)"),
    "a latent rate": _observed(_COUNT, "dist.Poisson($positive)"),
}


PARTS["share"] = lambda d: d.latent(
    "share", d.pick("dist.Beta(2.0, 3.0)", "dist.Beta(0.5, 0.5)", "dist.Uniform(0.0, 1.0)")
)


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
