"""From a codebook to row domains and back to units, for tables of people; and real people's rows to try."""

from __future__ import annotations

import io
from importlib import resources
from typing import Literal

import numpy as np
import numpy.typing as npt

from private_mcmc.data.answers import Answers
from private_mcmc.data.fields import Field, Level
from private_mcmc.data.files import Arrow, Parquet
from private_mcmc.data.schema import Schema

__all__ = ["Answers", "Arrow", "Field", "Level", "Parquet", "Schema", "load_adult"]


def load_adult(
    split: Literal["train", "test", "all"] = "train",
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Covariates and outcome of a logistic regression of income above 50,000 dollars, of the Adult census.

    The nine covariates are mapped to [0, 1] by public bounds and divided by 3, so that every row has
    Euclidean norm at most 1: intercept, age from 17 to 90, years of education out of 16, weekly hours
    out of 99, and indicators of sex, marriage, capital gain, capital loss and race.

    Returns:
        ``X`` of shape ``(n, 9)`` and ``y`` of shape ``(n,)`` with values 0 and 1; ``n`` is 32,561 for
        ``"train"``, 16,281 for ``"test"`` and 48,842 for ``"all"``.

    Source: Becker, Kohavi 1996, UCI, CC BY 4.0; see ``ADULT_LICENCE.txt``.
    """
    import pandas

    packed = resources.files("private_mcmc.data").joinpath("adult.csv.gz").read_bytes()
    people = pandas.read_csv(io.BytesIO(packed), compression="gzip")
    people = people[people["split"].isin(["train", "test"] if split == "all" else [split])]
    columns = [
        np.ones(len(people)),
        (people["age"].clip(17.0, 90.0) - 17.0) / 73.0,
        people["education_num"] / 16.0,
        people["hours_per_week"].clip(0.0, 99.0) / 99.0,
        people["sex"] == "Male",
        people["marital_status"] == "Married-civ-spouse",
        people["capital_gain"] > 0,
        people["capital_loss"] > 0,
        people["race"] == "White",
    ]
    y = people["income"].str.startswith(">50K").to_numpy(np.int64)
    return np.column_stack(columns).astype(np.float64) / 3.0, y
