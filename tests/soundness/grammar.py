"""Random NumPyro models as source text, with the domains of their rows: a seed gives a model."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.infer.reparam import LocScaleReparam, TransformReparam

from private_mcmc.domains import Ball, Binary, Box, Categories, Counts, Rows
from tests.soundness.across import ACROSS
from tests.soundness.draft import Draft
from tests.soundness.latents import BOUNDED, COEFFICIENTS, POSITIVE, REAL
from tests.soundness.observations import AROUND, SPECIAL, observation
from tests.soundness.outcomes import LOGITS, OUTCOMES, PROBABILITIES, RATES
from tests.soundness.predictors import MATRICES, PREDICTORS, UNUSUAL

_TABLES: tuple[Mapping[str, Any], ...] = (
    REAL, BOUNDED, POSITIVE, COEFFICIENTS, PREDICTORS, UNUSUAL, MATRICES,
    OUTCOMES, RATES, PROBABILITIES, LOGITS, AROUND, SPECIAL, ACROSS,
)  # fmt: skip
PRODUCTIONS = frozenset(name for table in _TABLES for name in table)


@dataclass(frozen=True)
class Written:
    """A model in words.

    Attributes:
        seed: gives the same model again.
        source: the text of ``def model``; a name ``SUBSAMPLE`` in it is the size of subsamples.
        columns: a domain in Python for every column.
        productions: what the grammar took.
    """

    seed: int
    source: str
    columns: Mapping[str, str]
    productions: tuple[str, ...]

    def __str__(self) -> str:
        rows = ", ".join(f"{name}={domain}" for name, domain in self.columns.items())
        return f"seed {self.seed}, {self.productions}\nRows({rows})\n{self.source}"

    @cached_property
    def rows(self) -> Rows:
        domains = {"Ball": Ball, "Box": Box, "Binary": Binary, "Categories": Categories, "Counts": Counts}
        return Rows(**{name: eval(text, domains) for name, text in self.columns.items()})

    @cached_property
    def model(self) -> Callable[..., None]:
        """The model as its author runs it."""
        return self._compiled(1)

    @cached_property
    def whole(self) -> Callable[..., None]:
        """The same with plates that take every row: what a potential is of."""
        return self._compiled(None)

    @property
    def single(self) -> bool:
        """Some of its arithmetic is in float32."""
        return "float32" in self.source

    def _compiled(self, subsample: int | None) -> Callable[..., None]:
        names: dict[str, Any] = {
            "SUBSAMPLE": subsample, "LocScaleReparam": LocScaleReparam, "TransformReparam": TransformReparam,
            "jax": jax, "jnp": jnp, "numpyro": numpyro, "dist": dist, "handlers": handlers,
        }  # fmt: skip
        exec(compile(self.source, f"<model of seed {self.seed}>", "exec"), names)
        return names["model"]


def write(seed: int, *, size: int = 2, wild: int = 2, outcome: str | None = None) -> Written:
    """The model of a seed, with predictors of ``size`` coefficients and, if given, an outcome by name."""
    draft = Draft(seed, size=size, wild=wild, outcome=outcome)
    last = observation(draft)
    if not draft.columns:
        draft.column("unused", "Box(0.0, 1.0)")
    body = "\n".join([*draft.lines, last])
    indented = "\n".join(f"    {line}" for line in body.splitlines())
    source = f"def model({', '.join(draft.columns)}):\n{indented}\n"
    return Written(seed, source, dict(draft.columns), tuple(draft.used))
