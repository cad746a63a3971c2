"""Productions of predictors: expressions of shape ``(n,)`` or ``(n, 3)`` made of latents and columns."""

from tests.soundness.draft import PARTS, Draft, Production
from tests.soundness.latents import coefficients


def design(d: Draft) -> str:
    """The matrix column."""
    domain = d.pick("Ball({r}, dim={p})", "Ball({r}, dim={p})", "Box(({lo},) * {p}, ({r},) * {p})")
    return d.column("X", domain.format(r=d.pick("1.0", "0.3", "2.0"), p=d.size, lo=d.pick("-1.0", "0.0")))


def number(d: Draft) -> str:
    """A column of single numbers."""
    return d.column("x", d.pick("Box(-1.0, 2.0)", "Box(0.0, 1.0)"))


def _pair(d: Draft) -> str:
    with d.sized(2):
        return coefficients(d)


PARTS |= {
    "X": design,
    "x": number,
    "g": lambda d: d.column("g", "Categories(2)"),
    "flag": lambda d: d.column("flag", "Binary()"),
    "pair": _pair,
    "linear": lambda d: d.take(LINEAR),
}


def _groups(d: Draft) -> str:
    effects = _pair(d)
    return d.fill(d.pick("$pair[$g]", "jax.nn.one_hot($g, 2) @ $pair", "jnp.take($pair, $g)"), pair=effects)


def _switch(d: Draft) -> str:
    flag = PARTS["flag"](d)
    text = d.pick(
        "jnp.where($flag == 1, $b, 0.0)", "($flag == 1) * $b", "$flag.astype(jnp.float32) * $b", "$flag * $b"
    )
    return d.fill(text, flag=flag)


def _nested(d: Draft) -> str:
    bent = d.pick("jnp.tanh({})", "jnp.clip({}, -1.0, 1.0)", "jnp.sin({})", "jnp.abs({})", "({}) ** 2")
    return bent.format(d.take(LINEAR))


def _deterministic(d: Draft) -> str:
    name = d.fresh("eta")
    d.write(f'{name} = numpyro.deterministic("{name}", {d.take(LINEAR)})')
    return name


LINEAR: dict[str, Production] = {
    "X @ w": "$X @ $w",
    "jnp.dot": "jnp.dot($X, $w)",
    "sum of products": "($X * $w).sum(-1)",
    "einsum": 'jnp.einsum("np,p->n", $X, $w)',
    "vmap": "X : $X\njax.vmap(lambda row: row @ $w)($X)",
    "jit": "jax.jit(lambda X, w: X @ w)($X, $w)",
    "standardised by public numbers": "(($X - 0.1) / 2.0) @ $w",
    "float32 column": "$X.astype(jnp.float32) @ $w",
    "slope of a number": "$x * $b",
}
PREDICTORS: dict[str, Production] = {
    **LINEAR,
    "intercept": "$a + $linear",
    "a constant": "x : $x\n$a + jnp.zeros_like($x)",
    "group effects": _groups,
    "random slopes": "pair : $pair\n$x * $pair[$g]",
    "offset column": lambda d: f"{d.column('offset', 'Box(-0.5, 0.5)')} + {d.take(LINEAR)}",
    "count as predictor": lambda d: d.fill(f"0.2 * {d.column('k', 'Counts(3)')} * $b"),
    "switch": _switch,
    # A Gaussian process by basis functions of one column (HSGP).
    "basis functions": "w : $w\njnp.cos($x[:, None] * (1 + jnp.arange($p.0))) @ "
    "(jnp.exp(-0.25 * jnp.arange($p.0) ** 2) * $w)",
    "polynomial": "w : $pair\njnp.stack([jnp.ones_like($x), $x], axis=-1) @ $w",
    "interaction": "$linear + $c * $X[:, 0] * $x",
    "deterministic predictor": _deterministic,
}
UNUSUAL: dict[str, Production] = {
    "latent scale": "$positive * ($linear)",
    "latent length scale": "w : $w\njnp.exp(-0.5 * (($x[:, None] - jnp.arange($p.0)) / $positive) ** 2) @ $w",
    "nonlinear predictor": _nested,
}


def predictor(d: Draft) -> str:
    """An expression of shape ``(n,)``."""
    if d.wild > 0 and d.chance(0.35):
        d.wild -= 1
        return d.take(UNUSUAL)
    return d.take(PREDICTORS)


def _columns(d: Draft) -> str:
    X = design(d)
    return f"jnp.stack([{', '.join(f'{X} @ {coefficients(d)}' for _ in range(3))}], axis=-1)"


MATRICES: dict[str, Production] = {
    "matrix of coefficients": "W ~ dist.Normal($loc, $scale).expand([$p, 3]).to_event(2)\n$X @ $W",
    "columns of predictors": _columns,
    "reference category": "W ~ dist.Normal($loc, $scale).expand([$p, 2]).to_event(2)\nX : $X\n"
    "jnp.concatenate([jnp.zeros(($X.shape[0], 1)), $X @ $W], axis=-1)",
    # One latent number times a public direction: three predictors of one dimension.
    "multiples of one predictor": "($x * $b)[:, None] * jnp.array([1.0, -0.5, 0.0])",
    "three intercepts": "W ~ dist.Normal($loc, $scale).expand([3]).to_event(1)\n"
    "$W + jnp.zeros(($x.shape[0], 1))",
}


def matrix(d: Draft) -> str:
    """An expression of shape ``(n, 3)``."""
    return d.take(MATRICES)
