"""From a codebook to row domains and back to units, for tables of people; and real people's rows to try."""

from __future__ import annotations

import csv
import gzip
import io
from importlib import resources
from typing import Literal

import numpy as np
import numpy.typing as npt

from private_mcmc.data.answers import Answers
from private_mcmc.data.fields import Field, Level
from private_mcmc.data.schema import Schema

__all__ = ["ADULT_COLUMNS", "Answers", "Field", "Level", "Schema", "load_adult"]

ADULT_COLUMNS = (
    "intercept",
    "age",
    "education",
    "hours",
    "male",
    "married",
    "capital_gain",
    "capital_loss",
    "white",
)


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
    packed = resources.files("private_mcmc.data").joinpath("adult.csv.gz").read_bytes()
    table = csv.DictReader(io.StringIO(gzip.decompress(packed).decode()))
    people = [person for person in table if split in ("all", person["split"])]
    X = np.array([_covariates(person) for person in people]) / 3.0
    y = np.array([person["income"].startswith(">50K") for person in people], dtype=np.int64)
    return X, y


def _covariates(person: dict[str, str]) -> tuple[float, ...]:
    return (
        1.0,
        (min(max(float(person["age"]), 17.0), 90.0) - 17.0) / 73.0,
        float(person["education_num"]) / 16.0,
        min(max(float(person["hours_per_week"]), 0.0), 99.0) / 99.0,
        float(person["sex"] == "Male"),
        float(person["marital_status"] == "Married-civ-spouse"),
        float(float(person["capital_gain"]) > 0),
        float(float(person["capital_loss"]) > 0),
        float(person["race"] == "White"),
    )
