"""Rows at extremes are in their domain."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from private_mcmc.domains import Ball, Binary, Box, Categories, Counts, Real, Rows
from private_mcmc.preflight.extreme_rows import extreme_rows

DOMAINS = {
    "ball": Ball(2.0, dim=3),
    "box": Box(-1, 3),
    "box away from zero": Box(1, 3),
    "array": Box([0.0, -1.0], [2.0, 1.0]),
    "binary": Binary(),
    "categories": Categories(7),
    "counts": Counts(9),
    "real": Real(dim=2),
    "number": Real(),
}


@pytest.mark.some(2)
@pytest.mark.parametrize("domain", DOMAINS.values(), ids=DOMAINS)
def test_extreme_rows_are_fixed_points_of_the_projection(domain) -> None:
    rows = Rows(a=domain, y=Binary())
    for row in extreme_rows(rows):
        with jax.enable_x64(True):
            moved = rows.project({name: np.asarray(value)[None] for name, value in row.items()})
        for name, value in row.items():
            # A point on a sphere may move inside by its own rounding.
            np.testing.assert_allclose(np.asarray(moved[name])[0], value, rtol=1e-13)


def test_extreme_rows_are_all_different() -> None:
    rows = extreme_rows(Rows(X=Ball(1.0, dim=3), z=Box(0, 1), y=Binary()))
    keys = {tuple((name, tuple(np.ravel(value))) for name, value in sorted(row.items())) for row in rows}
    assert len(keys) == len(rows) > 10
