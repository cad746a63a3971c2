"""Productions of models whose rows depend on one another, on their order or number, or only seem to.

Most are to be refused; a few are sums over rows in another dress. Whatever is read is compared with NumPyro.
"""

from tests.soundness.draft import PARTS, Draft, Production
from tests.soundness.latents import real

_OUTCOMES = {
    "Box(-2.0, 3.0)": ("dist.Normal({}, 1.5)", "dist.Laplace({}, 1.0)", "dist.StudentT(3.0, {}, 1.0)"),
    "Binary()": ("dist.Bernoulli(logits={})",),
    "Counts(6)": ("dist.Poisson(jnp.exp({}))", "dist.NegativeBinomial2(jnp.exp({}), 2.0)"),
}
_OF_ROWS = {"weight": "Box(0.5, 2.0)", "seen": "Binary()"}


def _begun(d: Draft, text: str) -> dict[str, str]:
    """What texts are about: a predictor ``$eta`` and a column ``$x``; ``n`` is its length."""
    own = {"eta": d.let("eta", PARTS["eta"](d)), "x": PARTS["x"](d)}
    d.write(f"n = {own['x']}.shape[0]")
    for name, domain in _OF_ROWS.items():
        if name in text:
            d.column(name, domain)
    return own


def _plated(law: str, obs: str = "y", inside: str = "") -> str:
    return f'with numpyro.plate("rows", n){inside}:\n    numpyro.sample("y", {law}, obs={obs})'


def _predictor(text: str, inside: str = "", before: str = "") -> Production:
    """``text`` is the mean of the column ``y``, under the handlers ``inside``."""

    def production(d: Draft) -> str:
        own = _begun(d, inside)
        if "$a" in text:
            # Groups by index: two effects, and the group of the row.
            own["a"] = d.latent("a", "dist.Normal(0.0, 1.0).expand([2]).to_event(1)")
            own["g"] = d.column("g", "Categories(3)")
        domain = d.pick(*_OUTCOMES)
        d.column("y", domain)
        law = d.pick(*_OUTCOMES[domain]).format(d.fill(text, **own))
        return _plated(law, inside=d.fill(inside, **own))

    return production


def _column(text: str) -> Production:
    """What is made of the column ``x`` has a slope."""
    return _predictor(f"($eta + 0.5 * jnp.tanh($eta) * ({text}))")


def _inside(handler: str) -> Production:
    return _predictor("$eta", f", handlers.{handler}")


def _outcome(text: str, law: str = "dist.Normal($eta, 1.0)", domain: str = "Box(0.5, 3.0)") -> Production:
    """What is made of the outcome ``y`` is observed."""

    def production(d: Draft) -> str:
        own = _begun(d, "")
        d.column("y", domain)
        return _plated(d.fill(law, **own), text)

    return production


def _statements(text: str) -> Production:
    """Whole statements about ``$eta``, ``$x``, a latent ``$b`` and a real outcome ``y``."""

    def production(d: Draft) -> str:
        own = _begun(d, "")
        d.column("y", "Box(-2.0, 3.0)")
        if "$b" in text:
            own["b"] = d.latent("b", real(d))
        return "\n".join(d.fill(f"at : {line}", **own) for line in text.splitlines())

    return production


def _rows(*inside: str, before: str = "") -> Production:
    """Statements in the plate of rows, and before it; ``~ `` stands before the law of the outcome."""
    lines = (f'numpyro.sample("y", {line[2:]}, obs=y)' if line.startswith("~ ") else line for line in inside)
    plated = "".join(f"\n    {line}" for line in lines)
    return _statements(f'{before}\nwith numpyro.plate("rows", n):{plated}'.lstrip())


_OTHER_ORDER: dict[str, Production] = {
    "rows reversed": _predictor("($eta[::-1])"),
    "rows rolled": _predictor("(jnp.roll($eta, 1))"),
    "rows sorted": _predictor("(jnp.sort($eta))"),
    "rows in the order of a column": _predictor("($eta[jnp.argsort($x)])"),
    "rows in a public order": _predictor("($eta[(3 * jnp.arange(n) + 1) % n])"),
    "rows lagged": _predictor("(jnp.concatenate([$eta[:1], $eta[:-1]]))"),
    "every row the last": _predictor("($eta[-1] + jnp.zeros(n))"),
    "rows indexed": _predictor("($eta[jnp.arange(n)])"),
    "rows reversed twice": _predictor("($eta[::-1][::-1])"),
    "rows through vmap": _predictor("(jax.vmap(lambda i: $eta[i])(jnp.arange(n)))"),
    "neighbours through vmap": _predictor("(jax.vmap(lambda i: $eta[(i + 1) % n])(jnp.arange(n)))"),
    "outcome of the neighbour": _outcome("jnp.roll(y, 1)"),
    "outcome sorted": _outcome("jnp.sort(y)"),
    "outcome before": _predictor("($eta + 0.3 * jnp.concatenate([jnp.zeros(1), $x[:-1]]))"),
    "autoregression": _rows(
        "before = jnp.concatenate([jnp.zeros(1), y[:-1]])", "~ dist.Normal($eta + $b * before, 1.0)"
    ),
    "from the second row on": _statements(
        'with numpyro.plate("rows", n - 1):\n    numpyro.sample("y", dist.Normal($eta[1:], 1.0), obs=y[1:])'
    ),
    "without the last row": _statements('numpyro.sample("y", dist.Normal($eta[:-1], 1.0), obs=y[:-1])'),
    "every row twice": _statements(
        'with numpyro.plate("rows", 2 * n):\n'
        "    twice = jnp.concatenate([$eta, $eta])\n"
        '    numpyro.sample("y", dist.Normal(twice, 1.0), obs=jnp.concatenate([y, y]))'
    ),
    "noise by position": _predictor("($eta + 0.1 * jax.random.normal(jax.random.key(0), (n,)))"),
    "trend over rows": _predictor("($eta + 0.2 * jnp.arange(n))"),
}
_STATISTICS: dict[str, Production] = {
    "column centred": _column("$x - $x.mean(0)"),
    "column standardised": _column("($x - $x.mean()) / (0.1 + $x.std())"),
    "column by its largest": _column("$x / (0.1 + jnp.abs($x).max())"),
    "column summed up": _column("jnp.cumsum($x)"),
    "column ranked": _column("jnp.argsort(jnp.argsort($x))"),
    "share below": _column("($x[:, None] > $x).mean(axis=1)"),
    "predictor centred": _predictor("($eta - $eta.mean())"),
    "softmax over rows": _predictor("(jax.nn.softmax($eta))"),
    "running maximum": _predictor("(jax.lax.cummax($eta))"),
    "recursion over rows": _predictor(
        "(jax.lax.scan(lambda s, e: (0.5 * s + e, 0.5 * s + e), 0.0, $eta)[1])"
    ),
    "largest row alone": _predictor("(jnp.where($x == $x.max(), $eta, 0.0))"),
    "mean of all": _predictor("(jnp.full(n, $eta.mean()))"),
}
_NUMBER_OF_ROWS: dict[str, Production] = {
    "divided by the rows": _predictor("($eta / n)"),
    "another rule for several rows": _predictor("($eta * (2.0 if n > 1 else 1.0))"),
    "another rule for many rows": _predictor("($eta * (2.0 if n > 3 else 1.0))"),
    "weighted by the rows": _inside("scale(scale=1.0 / n)"),
    "shares of all weights": _inside("scale(scale=weight / weight.sum())"),
    "weights of mean one": _inside("scale(scale=weight / weight.mean())"),
    "scale in the number of rows": _rows("~ dist.Normal($eta, jnp.sqrt(n))"),
}
_MASKS: dict[str, Production] = {
    "mask of the largest": _inside("mask(mask=$x < $x.max())"),
    "mask of a running count": _inside("mask(mask=jnp.cumsum(seen) < 3)"),
    "mask of the first row": _inside("mask(mask=jnp.arange(n) > 0)"),
    "mask of all or nobody": _inside("mask(mask=jnp.all(seen == 1) & (seen == 1))"),
    "mask of later rows": _inside("mask(mask=jnp.arange(n) < 4)"),
    "mask of a number": _inside("mask(mask=$x > 0.5)"),
    "missing outcome": _outcome("jnp.where(y > 1.0, y, 0.0)"),
}
_GROUPS: dict[str, Production] = {
    "mean of the group": _predictor("$a[$g % 2] + jax.ops.segment_sum($x, $g, 3)[$g]"),
    "row of the group": _predictor("$a[$g % 2] * $x[$g % n]"),
    "group beyond the end": _predictor("$a[$g]"),
    "group from the end": _predictor("$a[-$g % 2] * $x"),
    "group taken around": _predictor('jnp.take($a, $g, mode="wrap") * $x'),
    "group taken or not a number": _predictor("jnp.nan_to_num(jnp.take($a, $g)) * $x"),
    "size of the group": _predictor("$a[$g % 2] * jnp.bincount($g, length=3)[$g]"),
}
# A latent under a handler that gives it a value.
_UNDER = 'with handlers.{}(data={{"m": 0.3}}):\n    m = numpyro.sample("m", {})'
_SITES: dict[str, Production] = {
    "observed twice": _rows(
        "~ dist.Normal($eta, 1.0)", 'numpyro.sample("y_again", dist.Laplace($b + $eta, 2.0), obs=y)'
    ),
    "observed twice, once reversed": _rows(
        "~ dist.Normal($eta, 1.0)", 'numpyro.sample("y_again", dist.Normal($b + $eta, 2.0), obs=y[::-1])'
    ),
    "one name twice": _rows("~ dist.Normal($eta, 1.0)", "~ dist.Normal($b * $x, 2.0)"),
    "sites in a loop": _statements(
        'for k in range(2):\n    with numpyro.plate(f"rows{k}", n):\n'
        '        numpyro.sample(f"y{k}", dist.Normal((k + 1) * $eta, 1.0), obs=y)'
    ),
    "factor of the row": _rows('numpyro.factor("term", -0.5 * (y - $eta) ** 2)'),
    "factor and outcome": _rows("~ dist.Normal($eta, 1.0)", 'numpyro.factor("term", -jnp.abs($b * $x))'),
    "factor of rows before": _rows('numpyro.factor("term", -jnp.cumsum((y - $eta) ** 2))'),
    "factor of all rows in each": _rows('numpyro.factor("term", -((y - $eta) ** 2).mean())'),
    "factor of no row in the plate": _rows("~ dist.Normal($eta, 1.0)", 'numpyro.factor("term", -($b ** 2))'),
    "factor outside": _statements('numpyro.factor("term", -((y - $eta) ** 2).sum())'),
    "factor of a latent outside": _rows(
        "~ dist.Normal($eta + $b, 1.0)", before='numpyro.factor("term", -($b ** 4))'
    ),
    "all rows one event of a matrix": _statements(
        'numpyro.sample("y", dist.MultivariateNormal($eta, 2.0 * jnp.eye(n)), obs=y)'
    ),
    "process over rows": _statements(
        'numpyro.sample("y", dist.MultivariateNormal($eta, jnp.eye(n) + 0.5 * '
        "jnp.exp(-(($x[:, None] - $x) ** 2))), obs=y)"
    ),
    "walk over rows": _statements('numpyro.sample("y", dist.GaussianRandomWalk(1.0 + $b ** 2, n), obs=y)'),
    "latent of every row": _rows(
        'z = numpyro.sample("z", dist.Normal(0.0, 1.0))', "~ dist.Normal($eta + z, 1.0)"
    ),
    "effect of every row": _rows(
        'z = numpyro.sample("z", dist.Normal($eta, sd))',
        "~ dist.StudentT(3.0, $x + z, 1.0)",
        before='sd = numpyro.sample("sd", dist.LogNormal(0.0, 0.3))',
    ),
    "part of every row": _rows(
        'z = numpyro.sample("z", dist.Bernoulli(share))',
        "~ dist.Normal($eta * (1 - z) + z, 1.0)",
        before='share = numpyro.sample("share", dist.Beta(2.0, 2.0))',
    ),
    "part of the neighbour": _rows(
        'z = numpyro.sample("z", dist.Bernoulli(0.3))', "~ dist.Normal($eta + z[::-1], 1.0)"
    ),
    "weighted part of every row": _statements(
        'with numpyro.plate("rows", n), handlers.scale(scale=0.5):\n'
        '    z = numpyro.sample("z", dist.Normal(0.0, jnp.exp($b)))\n'
        '    numpyro.sample("y", dist.Normal($eta + z, 1.0), obs=y)'
    ),
    "missing covariate": _rows(
        'z = numpyro.sample("z", dist.Normal($b, 1.0), obs=$x, obs_mask=$x > 0)',
        "~ dist.Normal($eta + z, 1.0)",
    ),
    "latent of the first rows": _rows(
        "~ dist.Normal($eta + z[jnp.minimum(jnp.arange(n), 1)], 1.0)",
        before='z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([2]).to_event(1))',
    ),
    "prior centred at the data": _rows(
        "~ dist.Normal($eta + m, 1.0)", before='m = numpyro.sample("m", dist.Normal($x.mean(), 1.0))'
    ),
    "prior of the number of rows": _rows(
        "~ dist.Normal($eta + m, 1.0)", before='m = numpyro.sample("m", dist.Normal(0.0, 1.0 / n))'
    ),
    "latent fixed by a handler": _rows(
        "~ dist.Normal($eta + m, 1.0)", before=_UNDER.format("substitute", "dist.Normal(0.0, 1.0)")
    ),
    "latent conditioned": _rows(
        "~ dist.Normal($eta + m, 1.0)", before=_UNDER.format("condition", "dist.Normal(0.0, jnp.exp($b))")
    ),
    "latent set by an intervention": _rows(
        "~ dist.Normal($eta + m, 1.0)", before=_UNDER.format("do", "dist.Normal(0.0, 1.0)")
    ),
    "plate twice as large": _statements(
        'with numpyro.plate("rows", 2 * n, subsample_size=n):\n'
        '    numpyro.sample("y", dist.Normal($eta, 1.0), obs=y)'
    ),
    "missing values as latents": _rows('numpyro.sample("y", dist.Normal($eta, 1.0), obs=y, obs_mask=$x > 0)'),
}
_TYPES: dict[str, Production] = {
    "rounded in eight bits": _predictor("($eta * ($x * 100.0).astype(jnp.int8))"),
    "negative as unsigned": _predictor("($eta * ($x * 3.0).astype(jnp.int32).astype(jnp.uint8) * 0.01)"),
    "half precision": _predictor("($eta.astype(jnp.float16).astype(jnp.float32))"),
    "whole part": _predictor("($eta * jnp.floor($x * 2.0))"),
    "sign": _predictor("($eta * jnp.sign($x - 0.5))"),
    "gradient stopped": _predictor("(jax.lax.stop_gradient($eta) + $eta ** 2)"),
    "logarithm of the outcome": _outcome("jnp.log(y)"),
    "outcome squared": _outcome("y**2"),
    "outcome floored": _outcome("jnp.maximum(y, 1.0)", "dist.Gamma(2.0, jnp.exp($eta))"),
    "transformed outcome": _outcome(
        "y",
        "dist.TransformedDistribution(dist.Normal($eta, 1.0), "
        "[dist.transforms.ExpTransform(), dist.transforms.AffineTransform(0.1, 2.0)])",
    ),
    "outcome with a point": _outcome("y", "dist.Delta($eta)"),
}

ACROSS: dict[str, Production] = {
    **_OTHER_ORDER, **_MASKS, **_STATISTICS, **_SITES, **_GROUPS, **_NUMBER_OF_ROWS, **_TYPES,
}  # fmt: skip
