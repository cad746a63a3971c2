"""Productions of predictors: expressions of shape ``(n,)`` or ``(n, 3)`` made of latents and columns."""

from __future__ import annotations

from tests.soundness.draft import Draft, Production
from tests.soundness.latents import coefficients, positive, real


def design(d: Draft) -> str:
    """The matrix column."""
    domain = d.pick("Ball({r}, dim={p})", "Ball({r}, dim={p})", "Box(({lo},) * {p}, ({r},) * {p})")
    return d.column("X", domain.format(r=d.pick("1.0", "0.3", "2.0"), p=d.size, lo=d.pick("-1.0", "0.0")))


def number(d: Draft) -> str:
    """A column of single numbers."""
    return d.column("x", d.pick("Box(-1.0, 2.0)", "Box(0.0, 1.0)"))


def _product(template: str) -> Production:
    return lambda d: template.format(X=design(d), w=coefficients(d))


def _slope(d: Draft) -> str:
    return f"{number(d)} * {d.latent('b', real(d))}"


def _intercept(d: Draft) -> str:
    return f"{d.latent('a', real(d))} + {_linear(d)}"


def _constant(d: Draft) -> str:
    column = number(d)
    return f"{d.latent('a', real(d))} + jnp.zeros_like({column})"


def _groups(d: Draft) -> str:
    with d.sized(2):
        effects = coefficients(d)
    return d.pick("{a}[{g}]", "jax.nn.one_hot({g}, 2) @ {a}", "jnp.take({a}, {g})").format(
        a=effects, g=d.column("g", "Categories(2)")
    )


def _offset(d: Draft) -> str:
    return f"{d.column('offset', 'Box(-0.5, 0.5)')} + {_linear(d)}"


def _latent_scale(d: Draft) -> str:
    return f"{positive(d)} * ({_linear(d)})"


def _count(d: Draft) -> str:
    return f"0.2 * {d.column('k', 'Counts(3)')} * {d.latent('b', real(d))}"


def _switch(d: Draft) -> str:
    flag = d.column("flag", "Binary()")
    return d.pick(
        "jnp.where({f} == 1, {b}, 0.0)", "({f} == 1) * {b}", "{f}.astype(jnp.float32) * {b}", "{f} * {b}"
    ).format(f=flag, b=d.latent("b", real(d)))


def _random_slopes(d: Draft) -> str:
    with d.sized(2):
        slopes = coefficients(d)
    return f"{number(d)} * {slopes}[{d.column('g', 'Categories(2)')}]"


def _basis(d: Draft) -> str:
    """A Gaussian process by basis functions of one column (HSGP)."""
    weights = coefficients(d)
    spectrum = f"jnp.exp(-0.25 * jnp.arange({d.size}.0) ** 2)"
    return f"jnp.cos({number(d)}[:, None] * (1 + jnp.arange({d.size}.0))) @ ({spectrum} * {weights})"


def _polynomial(d: Draft) -> str:
    with d.sized(2):
        weights = coefficients(d)
    return f"jnp.stack([jnp.ones_like({number(d)}), {number(d)}], axis=-1) @ {weights}"


def _length_scale(d: Draft) -> str:
    weights = coefficients(d)
    return (
        f"jnp.exp(-0.5 * (({number(d)}[:, None] - jnp.arange({d.size}.0)) / {positive(d)}) ** 2) @ {weights}"
    )


def _interaction(d: Draft) -> str:
    return f"{_linear(d)} + {d.latent('c', real(d))} * {design(d)}[:, 0] * {number(d)}"


def _nested(d: Draft) -> str:
    return d.pick(
        "jnp.tanh({})", "jnp.clip({}, -1.0, 1.0)", "jnp.sin({})", "jnp.abs({})", "({}) ** 2"
    ).format(_linear(d))


def _deterministic(d: Draft) -> str:
    name = d.fresh("eta")
    d.write(f'{name} = numpyro.deterministic("{name}", {_linear(d)})')
    return name


LINEAR: dict[str, Production] = {
    "X @ w": _product("{X} @ {w}"),
    "jnp.dot": _product("jnp.dot({X}, {w})"),
    "sum of products": _product("({X} * {w}).sum(-1)"),
    "einsum": _product('jnp.einsum("np,p->n", {X}, {w})'),
    "vmap": _product("jax.vmap(lambda row: row @ {w})({X})"),
    "jit": _product("jax.jit(lambda X, w: X @ w)({X}, {w})"),
    "standardised by public numbers": _product("(({X} - 0.1) / 2.0) @ {w}"),
    "float32 column": _product("{X}.astype(jnp.float32) @ {w}"),
    "slope of a number": _slope,
}
PREDICTORS: dict[str, Production] = {
    **LINEAR,
    "intercept": _intercept,
    "a constant": _constant,
    "group effects": _groups,
    "random slopes": _random_slopes,
    "offset column": _offset,
    "count as predictor": _count,
    "switch": _switch,
    "basis functions": _basis,
    "polynomial": _polynomial,
    "interaction": _interaction,
    "deterministic predictor": _deterministic,
}
UNUSUAL: dict[str, Production] = {
    "latent scale": _latent_scale,
    "latent length scale": _length_scale,
    "nonlinear predictor": _nested,
}


def _linear(d: Draft) -> str:
    return d.take(LINEAR)


def predictor(d: Draft) -> str:
    """An expression of shape ``(n,)``."""
    if d.wild > 0 and d.chance(0.35):
        d.wild -= 1
        return d.take(UNUSUAL)
    return d.take(PREDICTORS)


def _matrix(d: Draft) -> str:
    W = d.latent("W", f"dist.Normal({d.loc()}, {d.scale()}).expand([{d.size}, 3]).to_event(2)")
    return f"{design(d)} @ {W}"


def _columns(d: Draft) -> str:
    X = design(d)
    return f"jnp.stack([{', '.join(f'{X} @ {coefficients(d)}' for _ in range(3))}], axis=-1)"


def _reference(d: Draft) -> str:
    W = d.latent("W", f"dist.Normal({d.loc()}, {d.scale()}).expand([{d.size}, 2]).to_event(2)")
    X = design(d)
    return f"jnp.concatenate([jnp.zeros(({X}.shape[0], 1)), {X} @ {W}], axis=-1)"


def _multiples(d: Draft) -> str:
    """One latent number times a public direction: three predictors of one dimension."""
    return f"({number(d)} * {d.latent('b', real(d))})[:, None] * jnp.array([1.0, -0.5, 0.0])"


def _intercepts(d: Draft) -> str:
    W = d.latent("W", f"dist.Normal({d.loc()}, {d.scale()}).expand([3]).to_event(1)")
    return f"{W} + jnp.zeros(({number(d)}.shape[0], 1))"


MATRICES: dict[str, Production] = {
    "matrix of coefficients": _matrix,
    "columns of predictors": _columns,
    "reference category": _reference,
    "multiples of one predictor": _multiples,
    "three intercepts": _intercepts,
}


def matrix(d: Draft) -> str:
    """An expression of shape ``(n, 3)``."""
    return d.take(MATRICES)
