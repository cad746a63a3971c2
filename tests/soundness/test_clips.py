"""Whatever cells a row has, and wherever the chain is, the row adds at most its clip; absent, nothing.

Models of the grammar, clips by their norm, metrics of every kind and both layouts of rows.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from private_mcmc.domains import Rows
from private_mcmc.errors import UnsupportedModel
from private_mcmc.kernels import gradient as gradients
from private_mcmc.kernels.gradient import clipped_gradient, whitening
from private_mcmc.model import RowModel, read
from private_mcmc.model.refusals import COUNT
from tests.soundness.grammar import write

ODD = np.array([np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324, -0.0, 0.0, 1e-160, 1e30, 1.0, 2.0**63, 0.5])
FAR = (0.0, 1.0, 30.0, 1e4, 1e8, 1e150, np.nan)
TRIED = 16


def odd_cells(rows: Rows, count: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Rows before they are mapped into their domains."""
    found = {}
    for name, domain in rows.items:
        shape = (count, *domain.event_shape)
        plain = rng.normal(size=shape) * 10.0 ** rng.integers(-3, 4)
        found[name] = np.where(rng.random(shape) < 0.6, rng.choice(ODD, size=shape), plain)
    return found


def metric(dim: int, rng: np.random.Generator):
    kind = rng.integers(3)
    if kind == 0:
        return None
    if kind == 1:
        return tuple(np.exp(2 * rng.normal(size=dim)).tolist())
    factor = rng.normal(size=(dim, dim))
    full = factor @ factor.T + 0.1 * np.eye(dim)
    return tuple(map(tuple, ((full + full.T) / 2).tolist()))


def excess(model: RowModel, rng: np.random.Generator) -> float:
    """The largest share of its clip that a row adds, over rows and states; what an absent one adds is 0."""
    clip = float(10.0 ** rng.integers(-3, 4))
    change, worst = whitening(metric(model.dim, rng), model.dim), 0.0
    odd, base = (model.rows.project(odd_cells(model.rows, count, rng)) for count in (TRIED, 2))
    states = jnp.stack([jnp.asarray(far * rng.normal(size=model.dim)) for far in FAR])
    for together in (None, 1):
        gradient = clipped_gradient(model, change, clip, together)

        def total(row, present, gradient=gradient):
            columns = {name: jnp.concatenate([row[name][None], base[name]]) for name in base}
            prepared = gradient.prepare(columns, jnp.stack([present, True, True]))
            return jax.lax.map(lambda u: gradient.total(u, prepared), states)

        of_each = jax.jit(lambda present, total=total: jax.lax.map(lambda row: total(row, present), odd))
        there, gone = np.asarray(of_each(True)), np.asarray(of_each(False))
        assert np.isfinite(there).all() and np.isfinite(gone).all() and (gone == gone[:1]).all()
        worst = max(worst, float(np.linalg.norm(there - gone, axis=-1).max()) / clip)
    return worst


def check(seeds: range) -> int:
    """How many models were read; no row adds more than the slack of clips that every price includes."""
    count = 0
    for seed in seeds:
        written = write(seed)
        with jax.enable_x64(True):
            try:
                model = read(written.model, written.rows, n=COUNT)
            except UnsupportedModel:
                continue
            # Two rows beside it are summed as well: a few roundings of at most three clips.
            assert excess(model, np.random.default_rng(seed)) <= 1 + 1.01e-10 + 64 * 2.0**-53, written
        count += 1
    return count


@pytest.mark.slow
def test_a_row_of_odd_cells_adds_at_most_its_clip():
    assert check(range(2)) >= 1


@pytest.mark.long
def test_a_clip_that_lets_by_what_is_not_finite_is_found_out(monkeypatch):
    monkeypatch.setattr(gradients.jnp, "isfinite", lambda values: jnp.ones_like(values, dtype=bool))
    with pytest.raises(AssertionError):
        check(range(12))


@pytest.mark.long
@pytest.mark.parametrize("start", range(2, 102, 10))
def test_a_row_of_odd_cells_adds_at_most_its_clip_in_many_models(start):
    assert check(range(start, start + 10)) >= 4
    jax.clear_caches()
