"""A row's numbers come from that row: primitives and derivatives that could mix or show rows are refused."""

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.experimental import hijax

import private_mcmc as pmc
from private_mcmc import Ball, Binary, Box, DoThisInstead, NotYetSupported, Person, Rows
from private_mcmc.kernels.gradient import Whitening, clipped_gradient
from private_mcmc.model import read, reading
from private_mcmc.potential import rowwise
from tests.examples_of_models import observed
from tests.kernels.test_rowwise import called, mixed, with_rule

ROWS = Rows(X=Ball(1.0, dim=2), y=Binary())


def unchanged(x):
    return x


def model_of(of_data=unchanged, of_row=unchanged, of_latent=unchanged):
    """Rows that are no function of one affine predictor, so that derivatives are taken as they come."""

    def model(X, y=None):
        w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
        b = numpyro.sample("b", dist.Normal(of_latent(w[0]), 1))
        observed(X, dist.Bernoulli(logits=jnp.tanh(of_row(of_data(X) @ w)) * b), y)

    return model


def sensitivity(model, n=40):
    """What one row moves the clipped sum by, in clips, at a few synthetic data sets and states."""
    found = read(model, ROWS, n=n)
    gradient = clipped_gradient(found, Whitening(None), 1.0)
    rng = np.random.default_rng(0)
    worst = 0.0
    with jax.enable_x64(True):
        total = jax.jit(lambda u, rows: gradient.total(u, gradient.prepare(rows, jnp.ones(n, bool))))
        for seed in range(4):
            rows = {name: np.array(column) for name, column in ROWS.synthetic(seed, n).items()}
            other = {name: column.copy() for name, column in rows.items()}
            other["X"][0], other["y"][0] = -other["X"][0], 1 - other["y"][0]
            u = jnp.asarray(rng.normal(size=3))
            worst = max(worst, float(jnp.linalg.norm(total(u, rows) - total(u, other))))
    return worst


def test_a_rule_for_many_rows_that_mixes_them_is_refused_and_would_move_every_row(monkeypatch):
    with pytest.raises(NotYetSupported, match="custom_vmap_call"):
        read(model_of(mixed), ROWS, n=40)
    assert sensitivity(model_of()) <= 2.0 + 1e-9
    monkeypatch.setattr(rowwise, "_refuse_unknown", lambda closed: None)
    with pytest.raises(DoThisInstead, match="differs from that of the whole model"):
        read(model_of(mixed), ROWS, n=40)
    monkeypatch.setattr(reading, "refuse_coupled_rows", lambda *given: None)
    assert sensitivity(model_of(mixed)) > 2.5


def operations(function, *given):
    """Objects that are operations made of others, as JAX 0.12 has them."""
    equations = jax.make_jaxpr(function)(*given).jaxpr.eqns
    inner = [one for each in equations for part in jex.jaxprs_in_params(each.params) for one in part.eqns]
    return [each.params["_prim"] for each in [*equations, *inner] if "_prim" in each.params]


def test_an_operation_of_ones_own_that_is_made_of_others_is_refused_by_name():
    class Same(getattr(hijax, "HiPrim", None) or hijax.VJPHiPrimitive):
        def __init__(self, given):
            self.in_avals, self.out_aval, self.params = (given,), given, {}
            super().__init__()

        def expand(self, x):
            return x

        def batch(self, axes, xs, dims):
            return xs[0] + 20 * xs[0][:1], dims[0]

    with pytest.raises(NotYetSupported, match="'Same'"):
        read(model_of(lambda x: Same(jax.typeof(x))(x)), ROWS, n=40)


def test_of_an_operation_of_jax_only_what_it_is_made_of_is_run():
    """The object is anybody's to change: its rules for many rows and for slopes are not asked."""
    ends, x = jnp.array([-0.3, 0.3]), jnp.linspace(-1, 1, 9)
    made = operations(jnp.searchsorted, ends, x)
    if not made:
        pytest.skip("this JAX has no such operation")

    def mixed(axes, given, dims):
        raise AssertionError("a rule that somebody set")

    made[0].batch = made[0].jvp = made[0].vjp_fwd = made[0].expand = mixed
    function = rowwise.rowwise(lambda one: made[0](ends, one))
    np.testing.assert_array_equal(
        jax.vmap(function)(x[:, None] + 0 * x), jnp.searchsorted(ends, x[:, None] + 0 * x)
    )


def printing(x):
    jax.debug.print("{}", x)
    return x


@pytest.mark.parametrize("rule", [printing, called])
@pytest.mark.parametrize("where", ["of_row", "of_latent"])
def test_a_derivative_that_shows_rows_or_states_is_refused(rule, where):
    """The values of the function show nothing: only its derivative, which a run takes, does."""
    with pytest.raises(DoThisInstead, match="prints or calls back"):
        read(model_of(**{where: with_rule(rule)}), ROWS, n=40)
    read(model_of(**{where: with_rule(unchanged)}), ROWS, n=40)


def test_a_derivative_with_a_rule_for_many_rows_is_refused():
    with pytest.raises(NotYetSupported, match="custom_vmap_call"):
        read(model_of(of_row=with_rule(mixed)), ROWS, n=40)


def test_the_derivative_of_a_persons_own_latent_is_looked_at():
    def model(X, who, persons, y=None):
        w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
        with numpyro.plate("persons", persons):
            u = numpyro.sample("u", dist.Normal(with_rule(printing)(w[0]), 1))
        observed(X, dist.Bernoulli(logits=X @ w + u[who]), y)

    rows = Rows(X=Ball(1.0, dim=2), y=Binary(), who=Person(at_most=2))
    with pytest.raises(DoThisInstead, match="prints or calls back"):
        read(model, rows, n=5, model_args={"persons": 5})


@pytest.mark.parametrize(
    ("generator", "fine"), [("rbg", False), ("unsafe_rbg", False), ("threefry2x32", True)]
)
def test_keys_that_follow_rows_are_of_a_generator_that_draws_for_each(generator, fine):
    """Under ``vmap`` the bits of ``rbg`` keys are those of the first one: rows would share another row's."""
    key = jax.random.key(0, impl=generator)

    def jittered(z):
        return z + jax.vmap(lambda one: jax.random.normal(jax.random.fold_in(key, one.astype(int))))(z)

    def model(z):
        mean = numpyro.sample("mean", dist.Normal(0, 1))
        with numpyro.plate("rows", z.shape[0]):
            numpyro.sample("z", dist.Normal(mean, 1), obs=jittered(z))

    if fine:
        read(model, Rows(z=Box(0, 100)), n=10)
    else:
        with pytest.raises(NotYetSupported, match=generator):
            read(model, Rows(z=Box(0, 100)), n=10)


def test_a_key_that_follows_nothing_is_any_generators():
    noise = jax.random.normal(jax.random.key(0, impl="rbg"))
    assert read(model_of(of_row=lambda x: x + noise), ROWS, n=10).dim == 3


def brought(bwd):
    same = jax.custom_vjp(unchanged)
    same.defvjp(lambda x: (x, None), bwd)
    return same


@pytest.mark.parametrize(
    "function",
    [
        brought(lambda _, slope: (slope, None)),
        brought(lambda _, slope: (jnp.zeros(7),)),
        lambda x: jax.jvp(brought(lambda _, slope: (slope,)), (x,), (jnp.ones_like(x),))[1],
    ],
)
@pytest.mark.parametrize("where", ["of_row", "of_latent"])
def test_a_derivative_that_jax_refuses_is_told_in_words(function, where):
    """It ended in an error of JAX, before anything was charged."""
    with pytest.raises(DoThisInstead, match=r"JAX refuses a derivative rule that the model brings"):
        read(model_of(**{where: function}), ROWS, n=40)


@pytest.mark.parametrize("averages", [False, True])
def test_after_the_decision_no_function_of_the_users_is_called(averages):
    """A rule of a derivative that followed a global number ran as another than was decided on."""
    calls = []
    row, latent = jax.custom_jvp(jnp.tanh), jax.custom_vjp(jnp.tanh)
    row.defjvp(lambda primals, tangents: (calls.append("row"), (jnp.tanh(*primals), *tangents))[1])
    latent.defvjp(lambda x: (jnp.tanh(x), None), lambda _, slope: (calls.append("latent"), (slope,))[1])
    averaged = {"b": lambda sites: jnp.tanh(sites["b"]) + 0 * len(calls.append("average") or calls)}
    mcmc = pmc.PrivateMCMC(
        pmc.PrivateULA(model_of(of_row=row, of_latent=latent), 0.01, clip=0.1, preconditioner=(1, 2, 3)),
        rows=ROWS,
        target=pmc.Target(1.0, 0.0 if averages else 1e-6),
        release=pmc.Expectations(averaged, bounds=(-1.0, 1.0)) if averages else "path",
        num_steps=3,
        guarantee="run",
    )
    mcmc.decide(6)
    before = list(calls)
    assert {"row", "latent"} <= set(before)
    mcmc.run(**{name: np.asarray(column) for name, column in ROWS.synthetic(0, 6).items()})
    assert calls == before
