"""Productions of latents: single priors, coefficient vectors, hierarchies, Gaussian processes."""

from tests.soundness.draft import PARTS, Draft, Production

_LOCATED = "dist.{}($loc, $scale)"
_TWO = "dist.MixtureSameFamily(dist.Categorical(probs=jnp.array({})), dist.Normal({}))"
_TRANSFORMED = "dist.TransformedDistribution(dist.Normal({}), dist.transforms.{})"
_VECTOR = ".expand([$p]).to_event(1)"

# Distributions on the real line.
REAL: dict[str, Production] = {
    **{name: _LOCATED.format(name) for name in ("Normal", "Laplace", "Cauchy")},
    **{name: _LOCATED.format(name) for name in ("Logistic", "SoftLaplace", "Gumbel")},
    "StudentT": "dist.StudentT($shape, $loc, $scale)",
    "AsymmetricLaplace": "dist.AsymmetricLaplace($loc, $scale, $shape)",
    "two Normals": _TWO.format("[0.4, 0.6]", "jnp.array([-0.3, 0.5]), $scale"),
    "spike and slab": _TWO.format("[0.5, 0.5]", "0.0, jnp.array([0.1, 1.0])"),
    "shifted Normal": _TRANSFORMED.format("0.0, $scale", "AffineTransform($loc, $shape)"),
    "flat": "dist.ImproperUniform(dist.constraints.real, (), ())",
    "infinitely wide": "dist.$(Normal|Laplace|Cauchy)(0.0, jnp.inf)",
    "no degrees of freedom": "dist.StudentT(0.0, 0.0, 1.0)",
}

# Distributions on an interval or half-line.
BOUNDED: dict[str, Production] = {
    "TruncatedNormal above": "dist.TruncatedNormal($loc, $scale, low=-1.0)",
    "TruncatedNormal below": "dist.TruncatedNormal($loc, $scale, high=1.0)",
    "TruncatedNormal on an interval": "dist.TruncatedNormal($loc, $scale, low=-1.0, high=1.5)",
    "TruncatedCauchy": "dist.TruncatedCauchy($loc, $scale, low=-1.0, high=2.0)",
    "Uniform": "dist.Uniform($(-1.0|-0.1), $(0.5|2.0))",
    "Beta": "dist.Beta($shape, $shape)",
    "Kumaraswamy": "dist.Kumaraswamy($shape, $shape)",
    "BetaProportion": "dist.BetaProportion(0.3, $shape)",
}

# Distributions on the positive numbers.
POSITIVE: dict[str, Production] = {
    "HalfNormal": "dist.HalfNormal($scale)",
    "HalfCauchy": "dist.HalfCauchy($scale)",
    "Exponential": "dist.Exponential($shape)",
    "Gamma": "dist.Gamma($shape, $shape)",
    "Chi2": "dist.Chi2($shape)",
    "InverseGamma": "dist.InverseGamma($shape, $shape)",
    "LogNormal": _LOCATED.format("LogNormal"),
    "Weibull": "dist.Weibull($shape, $shape)",
    "Pareto": "dist.Pareto($shape, $shape)",
    "TruncatedNormal at zero": "dist.TruncatedNormal($loc, $scale, low=0.0)",
    "HalfNormal by folding": "dist.FoldedDistribution(dist.Normal($loc, $scale))",
    "flat on the positive numbers": "dist.ImproperUniform(dist.constraints.positive, (), ())",
    "rate zero": lambda d: d.pick(
        "dist.Gamma(1.0, 0.0)", "dist.Exponential(0.0)", "dist.InverseGamma(0.0, 1.0)", "dist.Gamma(0.0, 1.0)"
    ),
    "exponential of a Normal": _TRANSFORMED.format("0.0, $scale", "ExpTransform()"),
}


def real(d: Draft) -> str:
    """A distribution of one number, Normal more often than not: a likely model is a read model."""
    if d.wild > 0 and d.chance(0.5):
        d.wild -= 1
        return d.take(BOUNDED if d.chance(0.3) else REAL)
    return d.take(REAL, "Normal")


def positive(d: Draft) -> str:
    """A latent scale."""
    return d.latent("tau", d.take(POSITIVE))


PARTS |= {
    "real": real,
    "usual": lambda d: d.take(REAL, "Normal"),
    "positive": positive,
    "sign": lambda d: d.take(POSITIVE),
    # Latent numbers by their names.
    **{name: lambda d, name=name: d.latent(name, real(d)) for name in ("a", "b", "c")},
}


def _plated(d: Draft) -> str:
    prior, name = real(d), d.fresh("w")
    d.write(
        f'with numpyro.plate("{name}_plate", {d.size}):', f'    {name} = numpyro.sample("{name}", {prior})'
    )
    return name


def _array(d: Draft) -> str:
    scales = ", ".join(PARTS["scale"](d) for _ in range(d.size))
    family = d.pick("Normal", "Laplace", "Logistic")
    event = d.pick("", ".to_event(1)", ".to_event(1)")
    return d.latent("w", f"dist.{family}(jnp.zeros({d.size}), jnp.array([{scales}])){event}")


def _stacked(d: Draft) -> str:
    parts = [d.latent("w", real(d)) for _ in range(d.size)]
    return d.let("w", f"jnp.stack([{', '.join(parts)}])")


def _reparam(law: str, how: str) -> Production:
    def production(d: Draft) -> str:
        own = {"tau": positive(d)} if "$tau" in law else {}
        name = d.fresh("w")
        d.write(
            f'with handlers.reparam(config={{"{name}": {d.fill(how)}}}):',
            f'    {name} = numpyro.sample("{name}", {d.fill(law, **own)})',
        )
        return name

    return production


def _horseshoe(d: Draft) -> str:
    own = {
        "tau": d.fill("tau ~ dist.HalfCauchy($scale)"),
        "lam": d.fill(f"lam ~ dist.HalfCauchy(1.0){_VECTOR}"),
    }
    if d.chance(0.5):
        return d.fill(f"z ~ dist.Normal(0, 1){_VECTOR}\nw = $z * $lam * $tau", **own)
    return d.fill("w ~ dist.Normal(0.0, $lam * $tau).to_event(1)", **own)


def _wishart(df: str, least: int) -> Production:
    def production(d: Draft) -> str:
        size = str(max(d.size, least))
        chol = f"chol ~ dist.WishartCholesky({df}, jnp.eye({size}))"
        return d.fill(f"{chol}\nz ~ dist.Normal(0, 1).expand([{size}]).to_event(1)\nw = ($chol @ $z)[:$p]")

    return production


def _covariance(d: Draft) -> str:
    given = d.pick("covariance_matrix={}", "precision_matrix={}", "scale_tril=jnp.linalg.cholesky({})")
    return d.fill(f"w ~ dist.MultivariateNormal(jnp.zeros($p), {given.format('jnp.eye($p) + 0.3')})")


def _gaussian_process(d: Draft) -> str:
    points = f"jnp.arange({d.size}.0)"
    amplitude = positive(d) if d.chance(0.5) else PARTS["scale"](d)
    kernel = f"jnp.exp(-0.5 * ({points}[:, None] - {points}) ** 2) + 0.1 * jnp.eye({d.size})"
    return d.latent("f", f"dist.MultivariateNormal(0.0, {amplitude} * ({kernel}))")


def _written_out(d: Draft) -> str:
    raw, name = d.fill(f"raw ~ $real{_VECTOR}"), d.fresh("w")
    d.write(f'{name} = numpyro.deterministic("{name}", {d.fill(f"$loc + $scale * {raw}")})')
    return name


COMMON_COEFFICIENTS: dict[str, Production] = {
    "expand and to_event": f"w ~ $real{_VECTOR}",
    "expand alone": "w ~ $real.expand([$p])",
    "latents in a plate": _plated,
    "prior scales in an array": _array,
    "sites stacked": _stacked,
    "deterministic coefficients": _written_out,
    "multivariate Normal": _covariance,
    "random walk": "w ~ dist.GaussianRandomWalk($scale, $p)",
    "TransformReparam": _reparam(
        f"dist.TransformedDistribution(dist.Normal(0.0, 1.0){_VECTOR}, "
        "dist.transforms.AffineTransform($loc, $scale))",
        "TransformReparam()",
    ),
}
COEFFICIENTS: dict[str, Production] = {
    **COMMON_COEFFICIENTS,
    "non-centred hierarchy": "tau : $positive\nmu ~ $usual\n"
    f"z ~ dist.Normal(0, 1){_VECTOR}\nw = $mu + $tau * $z",
    "centred hierarchy": f"tau : $positive\nmu ~ $usual\nw ~ dist.Normal($mu, $tau){_VECTOR}",
    "LocScaleReparam": _reparam(f"dist.Normal($loc, $tau){_VECTOR}", "LocScaleReparam($(0|0.5))"),
    "horseshoe": _horseshoe,
    "LKJ": "corr ~ dist.$(LKJCholesky|LKJ)($q, $shape)\nz ~ dist.Normal(0, 1).expand([$q]).to_event(1)\n"
    "w = ($corr @ $z)[:$p]",
    "WishartCholesky": _wishart("4.0", 2),
    "WishartCholesky of too few degrees of freedom": _wishart("1.5", 3),
    "Gaussian process": _gaussian_process,
    "low-rank Normal": "w ~ dist.LowRankMultivariateNormal(jnp.zeros($p), "
    "cov_factor=0.5 * jnp.ones(($p, 1)), cov_diag=jnp.ones($p))",
    "Dirichlet coefficients": "w ~ dist.Dirichlet(jnp.full($q, $shape))\n$w[:$p]",
    "ZeroSumNormal": lambda d: d.fill(f"w ~ dist.ZeroSumNormal($scale, ({d.size + 1},))\n$w[:$p]"),
    "ordered coefficients": f"w ~ dist.TransformedDistribution(dist.Normal($loc, $scale){_VECTOR}, "
    "dist.transforms.OrderedTransform())",
    "positive coefficients": f"w ~ $sign{_VECTOR}",
}


def coefficients(d: Draft) -> str:
    """An expression of shape ``(size,)`` that is made of latents."""
    if d.wild > 0 and d.chance(0.7):
        d.wild -= 1
        return d.take(COEFFICIENTS)
    return d.take(COMMON_COEFFICIENTS)


PARTS["w"] = coefficients
