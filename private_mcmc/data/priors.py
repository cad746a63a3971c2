"""Priors in the words of brms and bambi, on the user's scale, and the same priors in other units."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from private_mcmc.data.cells import is_number
from private_mcmc.errors import DeclarationError

_PRIOR = re.compile(r"^(?P<name>.+?)\s*~\s*(?P<law>[A-Za-z_]+)\s*\((?P<numbers>[^()]*)\)\s*$")
_STATED = re.compile(r"^(?P<name>\w+)\s*=\s*(?P<number>\S+)\s*$")


class _Law(NamedTuple):
    """NumPyro's class, the words for its parameters, and the unit of each."""

    distribution: str
    parameters: str
    units: str


# A parameter's unit: "l" a location, "s" a scale, "r" a rate, "m" the location of a logarithm, "-" none.
_LAWS = {
    "normal": _Law("Normal", "mean, sd", "ls"),
    "studentt": _Law("StudentT", "nu, mean, scale", "-ls"),
    "cauchy": _Law("Cauchy", "mean, scale", "ls"),
    "laplace": _Law("Laplace", "mean, scale", "ls"),
    "doubleexponential": _Law("Laplace", "mean, scale", "ls"),
    "halfnormal": _Law("HalfNormal", "sd", "s"),
    "halfcauchy": _Law("HalfCauchy", "scale", "s"),
    "exponential": _Law("Exponential", "rate", "r"),
    "gamma": _Law("Gamma", "shape, rate", "-r"),
    "lognormal": _Law("LogNormal", "mean, sd", "m-"),
    # Of the correlation of two effects.
    "lkj": _Law("Beta", "eta", "-"),
}
_REAL = ("normal", "studentt", "cauchy", "laplace", "doubleexponential")


@dataclass(frozen=True)
class Prior:
    """One of the laws above with its numbers; without a law, a number that is stated and not estimated."""

    law: str
    numbers: tuple[float, ...]

    @property
    def is_stated(self) -> bool:
        """Whether it is one number."""
        return not self.law

    @property
    def is_real(self) -> bool:
        """Whether its values are of either sign."""
        return self.law in _REAL

    def in_units(self, factor: float, shift: float = 0.0) -> Prior:
        """The law of ``factor·(x − shift)``."""
        change = {
            "l": lambda x: (x - shift) * factor,
            "s": lambda x: x * factor,
            "r": lambda x: x / factor,
            "m": lambda x: x + math.log(factor),
            "-": lambda x: x,
        }
        units = _LAWS[self.law].units
        return Prior(self.law, tuple(change[u](x) for u, x in zip(units, self.numbers, strict=True)))

    def source(self) -> str:
        """As NumPyro's distribution, or as a number."""
        if self.is_stated:
            return repr(self.numbers[0])
        if self.law == "lkj":
            return f"dist.Beta({self.numbers[0]!r}, {self.numbers[0]!r})"
        return f"dist.{_LAWS[self.law].distribution}({', '.join(map(repr, self.numbers))})"

    def __str__(self) -> str:
        shown = ", ".join(f"{number:.4g}" for number in self.numbers)
        return f"{self.law}({shown})" if self.law else shown


def normal(mean: float, sd: float) -> Prior:
    """A Normal prior."""
    return Prior("normal", (mean, sd))


def marginal(name: str, text: str) -> Prior:
    """The distribution of a field's missing numbers, on the user's scale."""
    _, found = _read(f"{name} ~ {text}")
    if found.law not in ("normal", "lognormal"):
        raise DeclarationError(f"field {name!r}: marginal: is normal(mean, sd) or lognormal(mean, sd).")
    return found


def read_priors(texts: Sequence[str]) -> Mapping[str, Prior]:
    """``age ~ normal(0, 0.1)``, ``sd(1 | region) ~ halfnormal(1)`` or ``sigma = 12``, by name."""
    found: dict[str, Prior] = {}
    for text in texts:
        name, prior = _read(text.strip())
        if name in found:
            raise DeclarationError(f"prior {text!r}: {name!r} has one already.")
        found[name] = prior
    return found


def check_sign(name: str, prior: Prior, *, real: bool) -> None:
    """Refuse a law of positive numbers for an effect, and one of all numbers for an sd."""
    if prior.is_stated and not real:
        return
    if prior.is_real != real:
        kinds = "normal, student_t, cauchy, laplace" if real else "halfnormal, halfcauchy, exponential, gamma"
        raise DeclarationError(f"prior of {name!r}: {prior} does not fit it; take one of {kinds}.")


def unknown_priors(given: Collection[str], every: Sequence[str]) -> DeclarationError:
    """For priors of terms that there are not; ``every`` are those that priors are for."""
    near = difflib.get_close_matches(min(given).partition("[")[0], every, n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]!r}? A prior is of a term, with all its levels." if near else ""
    return DeclarationError(f"prior of {sorted(given)}: there is no such term; priors are for {every}.{hint}")


def _read(text: str) -> tuple[str, Prior]:
    if (stated := _STATED.match(text)) and is_number(stated["number"]) and float(stated["number"]) > 0:
        return stated["name"], Prior("", (float(stated["number"]),))
    match = _PRIOR.match(text)
    name = "" if match is None else " ".join(re.sub(r"(\|+)", r" \1 ", match["name"]).split())
    law = "" if match is None else match["law"].lower().replace("_", "")
    if match is None or law not in _LAWS:
        raise DeclarationError(
            f"prior {text!r}: TERM ~ normal(mean, sd), as in 'age ~ normal(0, 0.1)', or NAME = NUMBER, as in "
            f"'sigma = 12'. There are {', '.join(_LAWS)}. Others: edit the model that --show-model prints."
        )
    words = [word.strip() for word in match["numbers"].split(",") if word.strip()]
    # As in `normal(mean=0, sd=1)`.
    values = [word.rpartition("=")[2].strip() for word in words]
    wanted = _LAWS[law]
    if len(values) != len(wanted.units) or not all(map(is_number, values)):
        raise DeclarationError(f"prior {text!r}: {match['law']}({wanted.parameters}), all of them numbers.")
    numbers = tuple(float(value) for value in values)
    positive = [number for number, unit in zip(numbers, wanted.units, strict=True) if unit not in "lm"]
    if not all(number > 0 for number in positive):
        raise DeclarationError(f"prior {text!r}: sds, scales, rates and shapes are positive.")
    return name, Prior(law, numbers)
