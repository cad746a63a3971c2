"""Batches have the law that was declared, their sums a public factor, and one row a bounded influence.

χ² tests use fixed seeds; each fails with probability 1e-6 for a fresh one.
"""

from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from private_mcmc.domains import Ball, Binary, Box, Rows
from private_mcmc.errors import DeclarationError
from private_mcmc.kernels import PrivateSGLD, Streams, langevin_program
from private_mcmc.kernels.batches import BatchDraw, _chosen, batch_sum
from private_mcmc.kernels.gradient import AffineRows, ClippedGradient, clipped_gradient, whitening
from private_mcmc.model import read
from private_mcmc.schedule import Schedule
from tests.examples_of_models import logistic, normal_mean
from tests.kernels.chains import run

LEVEL = 1e-6


def membership(n, absent=(), most=None, rate=0.1):
    """Law of the chosen rows: the estimate with one unit vector for each row, its factor taken off.

    Of what is drawn ahead only the first ``most`` numbers are given.
    """
    gradient = ClippedGradient(None, lambda u, rows: rows.present.astype(float) @ rows.design)
    schedule = Schedule(
        adjacency="add_remove", num_rows=n, dim=n, step_size=1.0, num_steps=10**6, clip=1.0, rate=rate
    )
    estimate = batch_sum(gradient, schedule)
    present = ~np.isin(np.arange(n), absent)

    def draw(count, seed=0):
        with jax.enable_x64(True):
            rows = AffineRows(jnp.eye(n), jnp.ones(n), None, {}, jnp.asarray(present))
            together, alone = jax.random.split(jax.random.key(seed))

            @jax.jit
            def several(steps):
                def one(k):
                    key = jax.random.fold_in(together, k)
                    drawn = None if estimate.draw is None else estimate.draw(key)[0, :most]
                    return estimate.total(jnp.zeros(n), rows, BatchDraw(alone, k, 0, drawn))

                return jax.vmap(one)(steps)

            return np.asarray(several(jnp.arange(count)))

    return draw


def chi_square(codes, wanted):
    """Counts of ``codes`` against the probabilities of ``wanted``; what is not wanted never happens."""
    found = {code: 0 for code in wanted}
    for code in codes:
        found[code] += 1
    expected = np.array([wanted[code] for code in found]) * len(codes)
    return stats.chisquare(list(found.values()), expected).pvalue


def subsets(rows):
    return [subset for size in range(len(rows) + 1) for subset in combinations(rows, size)]


@pytest.mark.some(1)
@pytest.mark.parametrize(("rate", "most"), [(0.08, None), (0.08, 1), (0.3, None)])
def test_poisson_rows_are_independent(rate, most):
    """All 2^5 subsets: the gathered (rare) route, also where more must be drawn, and the masked route."""
    n = 5
    wanted = {s: rate ** len(s) * (1 - rate) ** (n - len(s)) for s in subsets(range(n))}
    draws = membership(n, most=most, rate=rate)(40_000)
    np.testing.assert_allclose(draws[draws > 0], 1 / rate, rtol=1e-12)
    common = {s: p for s, p in wanted.items() if p * 40_000 >= 5}
    codes = [s if s in common else "rare" for s in (tuple(np.flatnonzero(draw > 0.5)) for draw in draws)]
    if len(common) < len(wanted):
        common["rare"] = 1 - sum(common.values())
    assert chi_square(codes, common) > LEVEL


@pytest.mark.some(1)
@pytest.mark.parametrize("rate", [0.5, 0.05], ids=["masked", "gathered"])
def test_one_row_moves_a_step_by_at_most_its_share(rate):
    """With the same keys a present row's term is at most γ·f·w·C, at any state, in the metric of M."""
    n, matrix = 40, ((2.0, 0.3), (0.3, 1.0))
    rows = Rows(X=Ball(2.0, dim=2), y=Binary())
    kernel = PrivateSGLD(logistic, 0.3, 0.7, 0.5, preconditioner=matrix, rate=rate)
    reading = read(logistic, rows, n=n)
    schedule = kernel.schedule(
        adjacency="add_remove", num_rows=n, dim=2, num_steps=9, num_chains=1, release="path"
    )
    program = langevin_program(reading, schedule)
    share = 0.3 * 0.5 * 0.7 / rate
    with jax.enable_x64(True):
        columns = rows.synthetic(1, n)
        keys = Streams(jax.random.key(2), jax.random.key(3))

        @jax.jit
        def stepped(u, present, keys):
            prepared = program.prepare(columns, present)
            return jax.lax.map(lambda k: program.step(u, k, keys, prepared)[0], jnp.arange(60))

        def steps(u, present):
            # Keys that the compiler knows it would draw with itself, slowly.
            return np.asarray(stepped(u, present, keys))

        # One present row against none: the batches are drawn with the same keys.
        nobody, one = jnp.zeros(n, bool), jnp.arange(n) == 3
        for scale in (0.0, -1e-3, 2.0, -40.0, 1e6):
            u = jnp.asarray([[scale, -0.5 * scale]])
            moved = np.linalg.norm(steps(u, one) - steps(u, nobody), axis=1)
            assert moved.max() <= share * (1 + 1e-6) + 1e-9 * abs(scale)
        u = jnp.full((1, 2), 3.0)
        moved = np.linalg.norm(steps(u, one) - steps(u, nobody), axis=1)
    assert (moved > 0.01 * share).any() and (moved < 1e-12).any()


@pytest.mark.long
@pytest.mark.parametrize("crowded", [False, True])
@pytest.mark.parametrize("first", [0, 300, 900])
def test_a_place_sums_the_share_of_a_batch_that_lies_there(first, crowded):
    """Also where far more of the batch lies there than one window holds; the naive sum."""
    n, here, rng = 1000, 100, np.random.default_rng(7)
    rows = Rows(X=Ball(1.0, dim=2), y=Binary())
    reading = read(logistic, rows, n=n)
    among = np.arange(first, first + here) if crowded else np.arange(n)
    numbers = rng.permutation(np.concatenate([rng.choice(among, 90, replace=False), [n, n]]))
    mine = numbers[(numbers >= first) & (numbers < first + here)]
    with jax.enable_x64(True):
        columns = rows.synthetic(1, n)
        gradient = clipped_gradient(reading, whitening(None, 2), 0.3)
        part = {name: column[first : first + here] for name, column in columns.items()}
        own = {name: column[mine] for name, column in columns.items()}
        u = jnp.asarray([0.4, -0.2])
        prepared = gradient.prepare(part, jnp.ones(here, bool))
        found = gradient.total(u, _chosen(prepared, jnp.asarray(numbers), n, jnp.asarray(first)))
        wanted = gradient.total(u, gradient.prepare(own, jnp.ones(len(mine), bool)))
    assert len(mine) == 90 if crowded else 0 < len(mine) < 20
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-13)


@pytest.mark.long
def test_chains_and_steps_draw_their_own_batches():
    """Every row has its own gradient; batches of about thirty rows: equal gradients mean equal draws."""
    rows, n = Rows(y=Box(-50.0, 50.0)), 1000
    reading = read(normal_mean, rows, n=n)
    common = dict(adjacency="replace_one", num_rows=n, dim=1, num_steps=9, num_chains=5, release="path")
    schedule = PrivateSGLD(normal_mean, 0.1, 100.0, batch_size=30).schedule(**common)
    program = langevin_program(reading, schedule)
    with jax.enable_x64(True):
        prepared = program.prepare(rows.project({"y": np.arange(n) / 20}), jnp.ones(n, bool))
        absent = program.prepare(rows.project({"y": np.arange(n) / 20}), jnp.zeros(n, bool))
        keys = Streams(jax.random.key(0), jax.random.key(2))
        step = jax.jit(program.step)
        at = [[step(jnp.zeros((5, 1)), k, keys, given) for given in (prepared, absent)] for k in (0, 1)]
    drawn = np.concatenate([np.asarray(full - none)[:, 0] for full, none in at])
    assert len(np.unique(np.round(drawn, 6))) == 10


def with_keys(present, *keys):
    """A path of three chains, with streams of these seeds."""
    streams = Streams(*map(jax.random.key, keys))
    kernel, rows, data = PrivateSGLD(normal_mean, 0.1, 1.0, rate=0.5), Rows(y=Box(-5.0, 5.0)), np.zeros(20)
    changes = {"adjacency": "add_remove", "num_steps": 9, "num_chains": 3, "release": "path"}
    return run(kernel, rows, {"y": data}, streams, present, **changes)


@pytest.mark.slow
def test_noise_and_batches_come_from_disjoint_streams():
    """Changing the stream of batches leaves the noise as it was: with no present row, the step itself."""
    np.testing.assert_array_equal(with_keys(False, 1, 2), with_keys(False, 1, 3))
    assert not np.array_equal(with_keys(True, 1, 2), with_keys(True, 1, 3))


def test_batches_without_a_key_are_refused():
    with pytest.raises(DeclarationError, match="batches"):
        with_keys(True, 1)


@pytest.mark.parametrize("options", [dict(), dict(rate=0.1, batch_size=3), dict(batch_size=0)])
def test_declarations_that_do_not_go_together_are_refused(options):
    with pytest.raises(DeclarationError):
        PrivateSGLD(logistic, 0.1, 1.0, **options)
