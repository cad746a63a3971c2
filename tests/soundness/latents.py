"""Productions of latents: single priors, coefficient vectors, hierarchies, Gaussian processes."""

from __future__ import annotations

from tests.soundness.draft import Draft, Production


def _located(family: str, before: str = "") -> Production:
    return lambda d: f"dist.{family}({before}{d.loc()}, {d.scale()})"


# Distributions on the real line.
REAL: dict[str, Production] = {
    "Normal": _located("Normal"),
    "Laplace": _located("Laplace"),
    "Cauchy": _located("Cauchy"),
    "Logistic": _located("Logistic"),
    "SoftLaplace": _located("SoftLaplace"),
    "Gumbel": _located("Gumbel"),
    "StudentT": lambda d: f"dist.StudentT({d.shape()}, {d.loc()}, {d.scale()})",
    "AsymmetricLaplace": lambda d: f"dist.AsymmetricLaplace({d.loc()}, {d.scale()}, {d.shape()})",
    "two Normals": lambda d: (
        f"dist.MixtureSameFamily(dist.Categorical(probs=jnp.array([0.4, 0.6])), "
        f"dist.Normal(jnp.array([-0.3, 0.5]), {d.scale()}))"
    ),
    "spike and slab": lambda d: (
        "dist.MixtureSameFamily(dist.Categorical(probs=jnp.array([0.5, 0.5])), "
        "dist.Normal(0.0, jnp.array([0.1, 1.0])))"
    ),
    "shifted Normal": lambda d: (
        f"dist.TransformedDistribution(dist.Normal(0.0, {d.scale()}), "
        f"dist.transforms.AffineTransform({d.loc()}, {d.shape()}))"
    ),
    "flat": lambda d: "dist.ImproperUniform(dist.constraints.real, (), ())",
    "infinitely wide": lambda d: f"dist.{d.pick('Normal', 'Laplace', 'Cauchy')}(0.0, jnp.inf)",
    "no degrees of freedom": lambda d: "dist.StudentT(0.0, 0.0, 1.0)",
}

# Distributions on an interval or half-line.
BOUNDED: dict[str, Production] = {
    "TruncatedNormal above": lambda d: f"dist.TruncatedNormal({d.loc()}, {d.scale()}, low=-1.0)",
    "TruncatedNormal below": lambda d: f"dist.TruncatedNormal({d.loc()}, {d.scale()}, high=1.0)",
    "TruncatedNormal on an interval": lambda d: (
        f"dist.TruncatedNormal({d.loc()}, {d.scale()}, low=-1.0, high=1.5)"
    ),
    "TruncatedCauchy": lambda d: f"dist.TruncatedCauchy({d.loc()}, {d.scale()}, low=-1.0, high=2.0)",
    "Uniform": lambda d: f"dist.Uniform({d.pick('-1.0', '-0.1')}, {d.pick('0.5', '2.0')})",
    "Beta": lambda d: f"dist.Beta({d.shape()}, {d.shape()})",
    "Kumaraswamy": lambda d: f"dist.Kumaraswamy({d.shape()}, {d.shape()})",
    "BetaProportion": lambda d: f"dist.BetaProportion(0.3, {d.shape()})",
}

# Distributions on the positive numbers.
POSITIVE: dict[str, Production] = {
    "HalfNormal": lambda d: f"dist.HalfNormal({d.scale()})",
    "HalfCauchy": lambda d: f"dist.HalfCauchy({d.scale()})",
    "Exponential": lambda d: f"dist.Exponential({d.shape()})",
    "Gamma": lambda d: f"dist.Gamma({d.shape()}, {d.shape()})",
    "Chi2": lambda d: f"dist.Chi2({d.shape()})",
    "InverseGamma": lambda d: f"dist.InverseGamma({d.shape()}, {d.shape()})",
    "LogNormal": _located("LogNormal"),
    "Weibull": lambda d: f"dist.Weibull({d.shape()}, {d.shape()})",
    "Pareto": lambda d: f"dist.Pareto({d.shape()}, {d.shape()})",
    "TruncatedNormal at zero": lambda d: f"dist.TruncatedNormal({d.loc()}, {d.scale()}, low=0.0)",
    "HalfNormal by folding": lambda d: f"dist.FoldedDistribution(dist.Normal({d.loc()}, {d.scale()}))",
    "flat on the positive numbers": lambda d: "dist.ImproperUniform(dist.constraints.positive, (), ())",
    "rate zero": lambda d: d.pick(
        "dist.Gamma(1.0, 0.0)", "dist.Exponential(0.0)", "dist.InverseGamma(0.0, 1.0)", "dist.Gamma(0.0, 1.0)"
    ),
    "exponential of a Normal": lambda d: (
        f"dist.TransformedDistribution(dist.Normal(0.0, {d.scale()}), dist.transforms.ExpTransform())"
    ),
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


def _expanded(d: Draft) -> str:
    return d.latent("w", f"{real(d)}.expand([{d.size}]).to_event(1)")


def _batch(d: Draft) -> str:
    return d.latent("w", f"{real(d)}.expand([{d.size}])")


def _plated(d: Draft) -> str:
    prior, name = real(d), d.fresh("w")
    d.write(
        f'with numpyro.plate("{name}_plate", {d.size}):', f'    {name} = numpyro.sample("{name}", {prior})'
    )
    return name


def _array(d: Draft) -> str:
    scales = ", ".join(d.scale() for _ in range(d.size))
    family = d.pick("Normal", "Laplace", "Logistic")
    event = d.pick("", ".to_event(1)", ".to_event(1)")
    return d.latent("w", f"dist.{family}(jnp.zeros({d.size}), jnp.array([{scales}])){event}")


def _stacked(d: Draft) -> str:
    parts = [d.latent("w", real(d)) for _ in range(d.size)]
    return d.let("w", f"jnp.stack([{', '.join(parts)}])")


def _non_centred(d: Draft) -> str:
    tau, mu = positive(d), d.latent("mu", d.take(REAL, "Normal"))
    z = d.latent("z", f"dist.Normal(0, 1).expand([{d.size}]).to_event(1)")
    return d.let("w", f"{mu} + {tau} * {z}")


def _centred(d: Draft) -> str:
    tau, mu = positive(d), d.latent("mu", d.take(REAL, "Normal"))
    return d.latent("w", f"dist.Normal({mu}, {tau}).expand([{d.size}]).to_event(1)")


def _loc_scale_reparam(d: Draft) -> str:
    tau, name = positive(d), d.fresh("w")
    d.write(
        f'with handlers.reparam(config={{"{name}": LocScaleReparam({d.pick("0", "0.5")})}}):',
        f'    {name} = numpyro.sample("{name}", '
        f"dist.Normal({d.loc()}, {tau}).expand([{d.size}]).to_event(1))",
    )
    return name


def _transform_reparam(d: Draft) -> str:
    name = d.fresh("w")
    d.write(
        f'with handlers.reparam(config={{"{name}": TransformReparam()}}):',
        f'    {name} = numpyro.sample("{name}", dist.TransformedDistribution('
        f"dist.Normal(0.0, 1.0).expand([{d.size}]).to_event(1), "
        f"dist.transforms.AffineTransform({d.loc()}, {d.scale()})))",
    )
    return name


def _horseshoe(d: Draft) -> str:
    tau = d.latent("tau", f"dist.HalfCauchy({d.scale()})")
    lam = d.latent("lam", f"dist.HalfCauchy(1.0).expand([{d.size}]).to_event(1)")
    if d.chance(0.5):
        z = d.latent("z", f"dist.Normal(0, 1).expand([{d.size}]).to_event(1)")
        return d.let("w", f"{z} * {lam} * {tau}")
    return d.latent("w", f"dist.Normal(0.0, {lam} * {tau}).to_event(1)")


def _lkj(d: Draft) -> str:
    kind = d.pick("LKJCholesky", "LKJ")
    factor = d.latent("corr", f"dist.{kind}({max(d.size, 2)}, {d.shape()})")
    z = d.latent("z", f"dist.Normal(0, 1).expand([{max(d.size, 2)}]).to_event(1)")
    return d.let("w", f"({factor} @ {z})[:{d.size}]")


def _wishart(df: str, least: int) -> Production:
    def production(d: Draft) -> str:
        size = max(d.size, least)
        factor = d.latent("chol", f"dist.WishartCholesky({df}, jnp.eye({size}))")
        z = d.latent("z", f"dist.Normal(0, 1).expand([{size}]).to_event(1)")
        return d.let("w", f"({factor} @ {z})[:{d.size}]")

    return production


def _covariance(d: Draft) -> str:
    matrix = f"jnp.eye({d.size}) + 0.3"
    given = d.pick("covariance_matrix={}", "precision_matrix={}", "scale_tril=jnp.linalg.cholesky({})")
    return d.latent("w", f"dist.MultivariateNormal(jnp.zeros({d.size}), {given.format(matrix)})")


def _gaussian_process(d: Draft) -> str:
    points = f"jnp.arange({d.size}.0)"
    amplitude = positive(d) if d.chance(0.5) else d.scale()
    kernel = f"jnp.exp(-0.5 * ({points}[:, None] - {points}) ** 2) + 0.1 * jnp.eye({d.size})"
    return d.latent("f", f"dist.MultivariateNormal(0.0, {amplitude} * ({kernel}))")


def _low_rank(d: Draft) -> str:
    return d.latent(
        "w",
        f"dist.LowRankMultivariateNormal(jnp.zeros({d.size}), "
        f"cov_factor=0.5 * jnp.ones(({d.size}, 1)), cov_diag=jnp.ones({d.size}))",
    )


def _simplex(d: Draft) -> str:
    return d.latent("w", f"dist.Dirichlet(jnp.full({max(d.size, 2)}, {d.shape()}))") + f"[:{d.size}]"


def _zero_sum(d: Draft) -> str:
    return d.latent("w", f"dist.ZeroSumNormal({d.scale()}, ({d.size + 1},))") + f"[:{d.size}]"


def _ordered(d: Draft) -> str:
    return d.latent(
        "w",
        f"dist.TransformedDistribution(dist.Normal({d.loc()}, {d.scale()}).expand([{d.size}]).to_event(1), "
        "dist.transforms.OrderedTransform())",
    )


def _signed(d: Draft) -> str:
    return d.latent("w", f"{d.take(POSITIVE)}.expand([{d.size}]).to_event(1)")


def _written_out(d: Draft) -> str:
    raw = d.latent("raw", f"{real(d)}.expand([{d.size}]).to_event(1)")
    name = d.fresh("w")
    d.write(f'{name} = numpyro.deterministic("{name}", {d.loc()} + {d.scale()} * {raw})')
    return name


COMMON_COEFFICIENTS: dict[str, Production] = {
    "expand and to_event": _expanded,
    "expand alone": _batch,
    "latents in a plate": _plated,
    "prior scales in an array": _array,
    "sites stacked": _stacked,
    "deterministic coefficients": _written_out,
    "multivariate Normal": _covariance,
    "random walk": lambda d: d.latent("w", f"dist.GaussianRandomWalk({d.scale()}, {d.size})"),
    "TransformReparam": _transform_reparam,
}
COEFFICIENTS: dict[str, Production] = {
    **COMMON_COEFFICIENTS,
    "non-centred hierarchy": _non_centred,
    "centred hierarchy": _centred,
    "LocScaleReparam": _loc_scale_reparam,
    "horseshoe": _horseshoe,
    "LKJ": _lkj,
    "WishartCholesky": _wishart("4.0", 2),
    "WishartCholesky of too few degrees of freedom": _wishart("1.5", 3),
    "Gaussian process": _gaussian_process,
    "low-rank Normal": _low_rank,
    "Dirichlet coefficients": _simplex,
    "ZeroSumNormal": _zero_sum,
    "ordered coefficients": _ordered,
    "positive coefficients": _signed,
}


def coefficients(d: Draft) -> str:
    """An expression of shape ``(size,)`` that is made of latents."""
    if d.wild > 0 and d.chance(0.7):
        d.wild -= 1
        return d.take(COEFFICIENTS)
    return d.take(COMMON_COEFFICIENTS)
