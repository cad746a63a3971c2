"""UCI Adult: who earns more than 50,000 dollars a year."""

from __future__ import annotations

from benchmarks.datasets.models import Regression
from benchmarks.datasets.record import Column, Dataset, indicator
from private_mcmc import Binary
from private_mcmc.data import load_adult

_COLUMNS = (
    Column("age", 17.0, 90.0, "the extract's documentation: people over 16; ages are top-coded at 90"),
    Column("education", 0.0, 16.0, "the extract's codes 1 to 16"),
    Column("hours", 0.0, 99.0, "a two-digit field of the census form"),
    *(indicator(name) for name in ("male", "married", "capital_gain", "capital_loss", "white")),
)


def adult() -> Dataset:
    """The 32,561 training rows as the package ships them, bounds applied there."""
    X, y = load_adult("train")
    return Dataset(
        name="adult",
        unit="a person of the 1994 US census sample",
        columns=_COLUMNS,
        X=X,
        y=y,
        regression=Regression("logistic", Binary()),
        source="private_mcmc.data; Becker and Kohavi (1996), UCI Adult",
    )
