"""Productions of observations: plates, handlers, masks, weights, subsamples and types around a likelihood."""

from tests.soundness.across import ACROSS
from tests.soundness.draft import Draft, Production
from tests.soundness.outcomes import OUTCOMES, location, logits, outcome

_PLATE = 'with numpyro.plate("rows", {n}):'


def _rows(d: Draft) -> str:
    """An expression for the number of rows."""
    return f"{next(iter(sorted(d.columns)))}.shape[0]"


def _around(
    before: str = "", wrap: str = "{fn}", columns: tuple[tuple[str, str], ...] = (), plate: str = _PLATE
) -> Production:
    def production(d: Draft) -> str:
        fn = d.let("fn", outcome(d))
        for name, domain in columns:
            d.column(name, domain)
        indented = f"{before}\n        " if before else ""
        return f'{plate.format(n=_rows(d))}\n    {indented}numpyro.sample("y", {wrap.format(fn=fn)}, obs=y)'

    return production


def _event(d: Draft) -> str:
    """All rows as one event; the density of the whole is the sum over rows."""
    return f'numpyro.sample("y", {d.let("fn", outcome(d))}.to_event(1), obs=y)'


def _subsample(d: Draft) -> str:
    fn = d.let("eta", logits(d))
    d.used.append("Bernoulli: logits")
    d.column("y", "Binary()")
    return (
        f'with numpyro.plate("rows", {_rows(d)}, subsample_size=SUBSAMPLE) as chosen:\n'
        f'    numpyro.sample("y", dist.Bernoulli(logits={fn}[chosen]), obs=y[chosen])'
    )


def _subsampled_values(d: Draft) -> str:
    eta = d.let("eta", location(d))
    d.used.append("Normal outcome")
    d.column("y", "Box(-2.0, 3.0)")
    return (
        f'with numpyro.plate("rows", {_rows(d)}, subsample_size=SUBSAMPLE):\n'
        f"    batch = numpyro.subsample({eta}, event_dim=0)\n"
        '    numpyro.sample("y", dist.Normal(batch, 1.5), obs=numpyro.subsample(y, event_dim=0))'
    )


def _items(d: Draft) -> str:
    """Two answers of every row, in nested plates."""
    eta = d.let("eta", location(d))
    d.column("y", "Box((-1.0, -2.0), (2.0, 1.0))")
    family = d.pick("dist.Normal({}, 1.0)", "dist.Laplace({}, 1.5)", "dist.Logistic({}, 1.0)")
    fn = family.format(f"{eta}[:, None] + jnp.array([0.0, 0.5])")
    return (
        f'with numpyro.plate("rows", {_rows(d)}, dim=-2), numpyro.plate("items", 2, dim=-1):\n'
        f'    numpyro.sample("y", {fn}, obs=y)'
    )


def _vector(d: Draft) -> str:
    """Two answers of every row, as one event."""
    eta = d.let("eta", location(d))
    d.column("y", "Box((-1.0, -2.0), (2.0, 1.0))")
    fn = d.pick(
        "dist.Normal({}, 1.0).to_event(1)",
        "dist.StudentT(3.0, {}, 1.0).to_event(1)",
        "dist.MultivariateNormal({}, jnp.array([[1.0, 0.3], [0.3, 2.0]]))",
    ).format(f"{eta}[:, None] * jnp.array([1.0, -0.5])")
    return f'{_PLATE.format(n=_rows(d))}\n    numpyro.sample("y", {fn}, obs=y)'


def _two_sites(d: Draft) -> str:
    first = d.let("fn", outcome(d))
    eta = d.let("eta", location(d))
    d.column("z", "Box(-1.0, 1.0)")
    second = d.pick("dist.Normal({}, 0.5)", "dist.Laplace({}, 1.0)").format(eta)
    return (
        f"{_PLATE.format(n=_rows(d))}\n"
        f'    numpyro.sample("y", {first}, obs=y)\n'
        f'    numpyro.sample("z", {second}, obs=z)'
    )


def _two_plates(d: Draft) -> str:
    first = d.let("fn", outcome(d))
    eta = d.let("eta", location(d))
    d.column("z", "Binary()")
    return (
        f'{_PLATE.format(n=_rows(d))}\n    numpyro.sample("y", {first}, obs=y)\n'
        f'with numpyro.plate("others", {_rows(d)}):\n'
        f'    numpyro.sample("z", dist.Bernoulli(logits={eta}), obs=z)'
    )


def _typed(kind: str, names: tuple[str, ...]) -> Production:
    """An outcome handed over in another type."""

    def production(d: Draft) -> str:
        fn = d.let("fn", d.take(OUTCOMES, d.pick(*names)))
        return f'{_PLATE.format(n=_rows(d))}\n    numpyro.sample("y", {fn}, obs={kind})'

    return production


def _residual(d: Draft) -> str:
    eta = d.let("eta", location(d))
    d.column("y", "Box(-2.0, 3.0)")
    return f'{_PLATE.format(n=_rows(d))}\n    numpyro.sample("y", dist.Normal(0.0, 1.5), obs=y - {eta})'


_WEIGHT, _SEEN = ("weight", "Box(0.0, 2.0)"), ("seen", "Binary()")
_SCALED_TWICE = "with handlers.scale(scale=0.5), handlers.scale(scale=weight):"

# Around any outcome.
AROUND: dict[str, Production] = {
    "plate": _around(),
    "plate dim=-1": _around(plate='with numpyro.plate("rows", {n}, dim=-1):'),
    "no plate": lambda d: f'numpyro.sample("y", {outcome(d)}, obs=y)',
    "to_event over rows": _event,
    "two outcomes": _two_sites,
    "two plates": _two_plates,
    "scale by a number": _around("with handlers.scale(scale=0.5):"),
    "scale by a column": _around("with handlers.scale(scale=weight):", columns=(_WEIGHT,)),
    "scaled twice": _around(_SCALED_TWICE, columns=(_WEIGHT,)),
    "masked by a handler": _around("with handlers.mask(mask=seen == 1):", columns=(_SEEN,)),
    "masked distribution": _around("", "{fn}.mask(seen == 1)", (_SEEN,)),
    "mask and scale": _around(
        "with handlers.scale(scale=weight), handlers.mask(mask=seen == 1):", columns=(_WEIGHT, _SEEN)
    ),
    "expanded outcome": _around("", "{fn}.expand({fn}.batch_shape)"),
}
# With an outcome of their own.
SPECIAL: dict[str, Production] = {
    "subsample by index": _subsample,
    "numpyro.subsample": _subsampled_values,
    "nested plates": _items,
    "vector outcome": _vector,
    "residual": _residual,
    "outcome as float32": _typed("y.astype(jnp.float32)", ("Poisson", "Normal outcome", "Bernoulli: logits")),
    "outcome as bool": _typed("y == 1", ("Bernoulli: logits", "Bernoulli: sigmoid")),
    "outcome as int32": _typed("y.astype(jnp.int32)", ("Categorical: logits", "Poisson", "OrderedLogistic")),
    "capped outcome": _typed("jnp.minimum(y, 2)", ("Poisson", "Geometric(logits)", "NegativeBinomial2")),
}


_ACROSS = (3, 5)


def observation(d: Draft) -> str:
    """The statements that observe the rows; a plain plate in every third model.

    Where the outcome is not given, two in eight are of rows that depend on one another, or seem to.
    """
    if d.outcome is None and d.seed % 8 in _ACROSS:
        turn = 2 * (d.seed // 8) + _ACROSS.index(d.seed % 8)
        return d.take(ACROSS, list(ACROSS)[turn % len(ACROSS)])
    if d.seed % 8 == 7:
        return d.take(SPECIAL, list(SPECIAL)[d.seed // 8 % len(SPECIAL)])
    return d.take(AROUND, "plate" if d.chance(0.3) else None)
