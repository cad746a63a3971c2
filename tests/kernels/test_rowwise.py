"""What kernels, stages of plans, sums and averages are given is looked at where it runs, whoever made it."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from jax.custom_batching import custom_vmap
from jax.extend.core import Primitive
from jax.scipy.special import betainc, gammainc, gammaincc, zeta
from jax.sharding import Mesh, PartitionSpec

import private_mcmc as pmc
from private_mcmc import Ball, Binary, DoThisInstead, NotYetSupported, Rows
from private_mcmc.analysis.analysis import _cdf
from private_mcmc.inference.execute_plan import _asked
from private_mcmc.kernels import Streams, langevin_program
from private_mcmc.model import read
from private_mcmc.potential.potential import Potential, RowTerm
from private_mcmc.potential.prior import PriorConstants
from private_mcmc.potential.rowwise import of_rows, rowwise
from tests.examples_of_models import logistic

ROWS = Rows(X=Ball(1.0, dim=2), y=Binary())
N = 6


@custom_vmap
def mixed(x):
    return x


@mixed.def_vmap
def _(size, batched, x):
    return x + 20 * x[:1], True


def called(x):
    jax.debug.callback(lambda value: None, x)
    return x


def noise(x):
    key = jax.random.fold_in(jax.random.key(0, impl="rbg"), jnp.abs(x.sum() * 1e6).astype(int))
    return x + jax.random.normal(key)


FAULTS = {"custom_vmap_call": mixed, "prints or calls back": called, "rbg": noise}
faults = pytest.mark.parametrize("words", FAULTS)


@pytest.fixture(scope="module")
def found():
    return read(logistic, ROWS, n=N)


def stepped(model: Potential):
    """One step of a chain, as kernels take it."""
    kernel = pmc.PrivateULA(logistic, step_size=0.1, clip=1.0)
    schedule = kernel.schedule(
        adjacency="replace_one", num_rows=N, dim=2, num_steps=1, num_chains=2, release="path"
    )
    with jax.enable_x64(True):
        program = langevin_program(model, schedule)
        columns = ROWS.project(ROWS.synthetic(0, N))
        rows = program.prepare(columns, jnp.ones(N, bool))
        return program.step(jnp.ones((2, 2)), jnp.zeros((), int), Streams(jax.random.key(0)), rows)


@faults
@pytest.mark.parametrize("part", ["loss", "predictor", "design", "prior"])
def test_a_model_made_by_hand_is_refused_as_one_that_is_read_is(found, part, words):
    fault, term = FAULTS[words], found.term
    assert np.all(np.isfinite(stepped(found)))
    if part == "prior":
        prior = PriorConstants(found.sites, [], lambda theta: found.neg_log_prior(fault(theta)))
        made = replace(found, prior=prior)
    elif part == "loss":
        loss = RowTerm(lambda theta, row: found.row_loss(theta, {**row, "X": fault(row["X"])}), ROWS)
        made = replace(found, term=loss)
    else:
        own = term.predictors
        changed = {
            "predictor": {"unknown": lambda eta, row: own.loss(fault(eta), row)},
            "design": {"eta": lambda theta, row: own.eta(theta, {**row, "X": fault(row["X"])})},
        }[part]
        made = replace(found, term=replace(term, of=replace(own, **changed)))
    with pytest.raises((DoThisInstead, NotYetSupported), match=words):
        stepped(made)


def with_rule(rule):
    same = jax.custom_jvp(lambda x: x)
    same.defjvp(lambda primals, tangents: (rule(primals[0]), tangents[0]))
    return same


@faults
def test_a_derivative_of_a_model_made_by_hand_is_looked_at(found, words):
    same = with_rule(FAULTS[words])
    made = replace(found, term=RowTerm(lambda theta, row: found.row_loss(same(theta), row), ROWS))
    with pytest.raises((DoThisInstead, NotYetSupported), match=words):
        stepped(made)


@faults
@pytest.mark.parametrize(
    "asked",
    [of_rows, lambda f, rows: _asked(f, ROWS, None, False).answer(rows, jnp.zeros((), int), jnp.zeros(0))],
)
def test_what_stages_and_sums_ask_of_rows_is_looked_at(words, asked):
    with jax.enable_x64(True):
        rows = ROWS.project(ROWS.synthetic(0, N))
        with pytest.raises((DoThisInstead, NotYetSupported), match=words):
            asked(lambda row: (FAULTS[words](row["X"]),), rows)


@faults
def test_what_is_averaged_along_a_chain_is_looked_at(words):
    def squared(sites):
        return jnp.tanh(FAULTS[words](sites["w"]))

    mcmc = pmc.PrivateMCMC(
        pmc.PrivateULA(logistic, step_size=0.01, clip=1.0),
        rows=ROWS,
        target=pmc.Target(1.0, 0.0),
        release=pmc.Expectations({"squared": squared}, bounds=(-1.0, 1.0)),
        num_steps=5,
        guarantee="run",
    )
    with pytest.raises((DoThisInstead, NotYetSupported), match=words):
        mcmc.run(**{name: np.asarray(column) for name, column in ROWS.synthetic(0, N).items()})


@pytest.mark.parametrize(
    "mix",
    [
        lambda x: jax.lax.psum(x, "rows"),
        lambda x: x + jax.lax.axis_index("rows"),
        lambda x: jax.lax.ppermute(x, "rows", [(0, 0)]),
    ],
)
def test_sums_over_the_devices_that_rows_lie_on_are_refused(mix):
    mesh, own = Mesh(np.asarray(jax.devices()[:1]), ("rows",)), PartitionSpec("rows")
    ran = jax.shard_map(jax.vmap(rowwise(mix)), mesh=mesh, in_specs=own, out_specs=own, check_vma=False)
    with pytest.raises(NotYetSupported, match="named axis"):
        ran(jnp.ones((4, 2)))


def test_an_index_that_leaves_its_array_promises_nothing():
    """Inside loops and branches, too: slopes are those of the values that keep to the array."""
    levels = jnp.arange(3.0)

    def looked_up(x, place):
        return jax.lax.cond(x > 0, lambda b: (b * levels)[place], lambda b: 0.0 * b, x)

    with jax.enable_x64(True):
        text = str(jax.make_jaxpr(rowwise(looked_up))(1.0, 7))
        value, slope = jax.value_and_grad(rowwise(looked_up))(1.0, 7)
        assert value == slope == 2.0
    assert "PROMISE_IN_BOUNDS" not in text.upper()


def test_constants_are_those_of_the_time_when_it_was_looked_at():
    held = np.ones(2)
    ran = jax.jit(jax.vmap(rowwise(lambda x: x + held)))
    before = ran(jnp.zeros((3, 2)))
    held[:] = 7.0
    np.testing.assert_array_equal(ran(jnp.zeros((3, 2))), before)


def test_arrays_that_nothing_was_written_to_are_zeros():
    """On accelerators they hold what was in memory before: another row, perhaps."""

    def unset(x):
        above = jax.lax.cond(x > 0, lambda: jax.lax.empty((), x.dtype), lambda: x)
        return jax.lax.empty((3,), x.dtype).at[0].set(x) + above

    with jax.enable_x64(True):
        ran = rowwise(unset)
        np.testing.assert_array_equal(jax.vmap(ran)(jnp.arange(2.0)), [[0, 0, 0], [1, 0, 0]])
        assert "empty" not in str(jax.make_jaxpr(ran)(1.0))


def test_programs_that_a_solver_keeps_are_looked_into():
    def solved(x, places):
        def half(_, b):
            return b / 2 + jax.lax.empty((2,), x.dtype) + jnp.arange(3.0)[places]

        return jax.lax.custom_linear_solve(lambda v: 2 * v, jnp.stack([x, x]), half)

    with jax.enable_x64(True):
        text = str(jax.make_jaxpr(rowwise(solved))(1.0, jnp.arange(2)))
    assert "empty" not in text and "PROMISE_IN_BOUNDS" not in text.upper()


@pytest.mark.parametrize("name", ["random_wrap", "empty", "add"])
def test_a_primitive_is_jaxs_own_by_identity_and_not_by_its_name(name):
    other = Primitive(name)
    other.def_abstract_eval(lambda x: x)
    with jax.enable_x64(True):
        if name == "empty":  # zeros stand in its place
            assert rowwise(other.bind)(2.0) == 0.0
        else:
            with pytest.raises(NotYetSupported, match=name):
                rowwise(other.bind)(2.0)


def test_programs_of_whole_numbers_alone_are_of_the_floats_in_force():
    """No argument tells their width: what was traced first, in 32 bits, ran in a run of 64."""
    third = rowwise(lambda row: row / jnp.full((), 3.0))
    found = []
    for wide in (False, True):
        with jax.enable_x64(wide):
            found.append(third(np.int32(1)).dtype)
    assert found == [np.float32, np.float64]


def test_keywords_of_a_partial_function_are_kept():
    def moved(by, row, times=1.0):
        return times * (row["x"] + by)

    found = of_rows(partial(moved, 1.0, times=3.0), {"x": jnp.arange(2.0)})
    np.testing.assert_array_equal(found, [3.0, 6.0])


LOOPS = {
    "gammaincc": lambda x: gammaincc(x, 2.0),
    "gammainc of a": jax.grad(lambda x: gammainc(x, 2.0)),
    "random_gamma_grad": lambda x: jax.lax.random_gamma_grad(x, x / 2),
    "binomial": lambda x: _cdf(dist.Binomial(9, x / 10), 4),
    "negative binomial": lambda x: dist.NegativeBinomial2(x, 3.0).cdf(4),
    "beta": lambda x: dist.BetaProportion(x / 1e6, x).cdf(0.3),
    "t": lambda x: dist.StudentT(x, 0.0, 1.0).cdf(-1.5),
    "betainc, its slopes": jax.grad(rowwise(lambda x: betainc(x, 9 - x, x / 9))),
    "zeta": lambda x: zeta(x + 1, 2.0),
    "while_loop": lambda x: jax.lax.while_loop(lambda y: y > 1e-3, lambda y: y / (1 + x), x),
}


@pytest.mark.parametrize("name", LOOPS)
def test_a_row_has_one_value_however_long_another_row_takes(name):
    """JAX's own loop for ``betainc`` goes on for all rows until the last one is done, and moved them."""
    with jax.enable_x64(True):
        every = jax.jit(jax.vmap(rowwise(LOOPS[name])))
        for x in np.random.default_rng(0).uniform(0.5, 4.0, 30):
            rows = np.full(4, x)
            before = every(rows)
            for other in (1e-6, 8.9, 1e5, np.nan):
                rows[0] = other
                np.testing.assert_array_equal(every(rows)[1:], before[1:])
