"""Does a prior integrate to one? NumPyro's families do, as long as their parameters are what they must be."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from private_mcmc.modeling.anatomy import Site
from private_mcmc.modeling.intervals import bounds
from private_mcmc.modeling.program import Program, Variable
from private_mcmc.modeling.values import Value

_POSITIVE = frozenset(["scale", "rate", "concentration", "concentration0", "concentration1", "df"])


def is_normalised(program: Program, site: Site) -> bool:
    """A family of NumPyro's own with public parameters inside their ranges, or latent ones that cannot leave.

    NumPyro takes ``Normal(0, inf)`` and ``Uniform(1, 0)``, which have no density.
    """
    if "." in site.family:
        return False
    prefix = f"given:{site.name}:"
    given = {key[len(prefix) :]: v for key, v in program.outputs.items() if key.startswith(prefix)}
    values = dict(zip(given, bounds(program, {}, given.values()), strict=True))
    within = all(_within(program, name.rsplit(".", 1)[-1], given[name], values[name]) for name in given)
    return within and _ordered(values)


def _within(program: Program, name: str, variable: Variable, value: Value) -> bool:
    public = not program.reads([variable])
    if public:
        exact = np.asarray(program.run([variable], {})[0], np.float64)
        if not np.all(np.isfinite(exact)):
            return False
        if name == "correlation":
            return bool(np.all(np.abs(exact) < 1))
        return name not in _POSITIVE or bool(np.all(exact > 0))
    # A latent scale may come as near to zero as it likes, but is not zero.
    return name not in _POSITIVE or bool(value.lowest >= 0 and np.all(value.hi > 0))


def _ordered(values: Mapping[str, Value]) -> bool:
    if "low" not in values or "high" not in values:
        return True
    return bool(np.all(values["high"].lo > values["low"].hi))
