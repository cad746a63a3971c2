"""What is asked of a table before it is looked at: a formula or a model; bounds that are bought first."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from private_mcmc import accounting
from private_mcmc.data.answers import Answers, units
from private_mcmc.data.design import Design, design
from private_mcmc.data.families import family as family_of
from private_mcmc.data.fields import Field, count_of, identifier
from private_mcmc.data.formula import read_formula
from private_mcmc.data.schema import Schema
from private_mcmc.data.source import compile_model, model_source, shown_source
from private_mcmc.domains import Rows
from private_mcmc.domains.columns import PRESENT
from private_mcmc.errors import DeclarationError, NotYetSupported
from private_mcmc.inference.declared import Engine
from private_mcmc.inference.execute_plan import row_sums
from private_mcmc.planning import Plan, Prediction
from private_mcmc.planning.prediction import Named
from private_mcmc.records import Fields, Model
from private_mcmc.release import Family, Sums, SumsPlan, plan_sums
from private_mcmc.release.noise import FloatArray
from private_mcmc.report import at_most, number
from private_mcmc.target import Target


@dataclass(frozen=True, eq=False)
class Question:
    """What is asked of a table, before it is looked at.

    ``rows``: domains of the ``fields`` that the model reads; ``design``: what the formula was read as.
    """

    schema: Schema
    fields: tuple[str, ...]
    rows: Rows
    model: Model
    source: str
    formula: str = ""
    family: str = ""
    priors: tuple[str, ...] = ()
    design: Design | None = None
    notes: tuple[str, ...] = ()

    @property
    def units(self) -> dict[str, str]:
        """Of the coefficients, by name; empty for a model of one's own."""
        return {} if self.design is None else units(self.design)

    @property
    def coefficients(self) -> Named | None:
        """From draws of the model's sites to draws of coefficients in the user's units, by name."""
        found = self.design
        return None if found is None else lambda draws: Answers(found, draws).by_name

    def public(self, n: int) -> dict[str, int]:
        """Public arguments besides the columns: the number of persons, where they have effects."""
        count = "" if self.rows.unit is None else count_of(self.rows.unit.name)
        return {count: n} if count in inspect.signature(self.model).parameters else {}

    def on(self, schema: Schema) -> Question:
        """The same question of a table with other bounds."""
        if self.formula:
            return question(schema, self.formula, family=self.family, priors=self.priors)
        return replace(question(schema, model=self.model), source=self.source)


def question(
    schema: Schema,
    formula: str | None = None,
    *,
    family: str = "bernoulli",
    priors: Sequence[str] = (),
    model: Model | None = None,
) -> Question:
    """The model of a formula, or one whose arguments are fields of the schema."""
    if not isinstance(formula, str | None) or isinstance(priors, Mapping):
        raise DeclarationError(
            "formula: a text, as 'death ~ age'; priors: a list of texts, as ['sigma = 12']."
        )
    priors = [priors] if isinstance(priors, str) else priors
    if formula is not None and model is None:
        made = design(read_formula(formula, schema), schema, family_of(family), priors)
        source = model_source(made)
        return Question(
            schema,
            made.formula.fields,
            made.rows,
            compile_model(source),
            source,
            formula=formula,
            family=made.family.name,
            priors=tuple(priors),
            design=made,
            notes=(*schema.notes, *_notes(made)),
        )
    if model is None or formula is not None:
        raise DeclarationError("give a formula, as 'death ~ age + sex', or a model; one of them.")
    if priors:
        raise DeclarationError("priors are those of the model: change them in its source.")
    names = {identifier(field.name): field.name for field in schema.fields if field.is_used}
    extra = {identifier(field.indicator): field.name for field in schema.fields if field.indicator}
    every = list(inspect.signature(model).parameters)
    who = identifier(schema.person) if schema.at_most > 1 else ""
    wanted = [name for name in every if not who or name not in (who, count_of(who))]
    if unknown := [name for name in wanted if name not in names and name not in extra]:
        raise DeclarationError(
            f"model: arguments {unknown} are no fields of the schema; it has {sorted(names)}."
        )
    fields = tuple(dict.fromkeys(names.get(name) or extra[name] for name in wanted))
    rows = schema.rows(fields)
    if ignored := sorted(set(rows.columns) - set(wanted)):
        raise DeclarationError(f"model: take {ignored} as arguments too: they say which numbers are missing.")
    return Question(schema, fields, rows, model, shown_source(model), notes=schema.notes)


def _notes(made: Design) -> tuple[str, ...]:
    schema = made.schema
    apart = schema.at_most > 1 and not any(term.own for term in made.formula.terms)
    alike = (
        f"Rows of one {schema.person!r} count as independent of each other, given what the formula has. If "
        "they are more alike than that, intervals are too narrow and errors larger than predicted: add an "
        f"effect of each, (1 | {schema.person}).",
    )
    told = {each.name: each.words for each in made.family.parameters if each.words}
    return (
        *alike * apart,
        *_weighed(made),
        *(
            f"{name} is taken to be {made.parameters[name]}, nothing was said of it"
            + (f" ({told[name]})" if name in told else "")
            + f". State what is known, as the prior {name} = {made.parameters[name]}, or have it estimated, "
            f"as {name} ~ halfnormal(…)."
            for name in made.unsaid
        ),
    )


def _weighed(made: Design) -> tuple[str, ...]:
    """What weights of rows do to intervals: those of the sandwich, by Kish's design effect."""
    if not (name := made.formula.weights):
        return ()
    most = made.schema[name].range[1]
    bound = (
        f"They are as wide as weights up to {number(most, 3)} can make them: state less, deff=…, where that "
        f"is known (1 + c² of weights with mean 1 and sd c, which describe tells of {name!r})."
    )
    return (
        f"Rows count as {name!r} says: a pseudo-posterior, with the sandwich's intervals where weights and "
        "residuals have nothing to do with each other: they hold Kish's design effect, Σw²/Σw = "
        f"{number(made.formula.deff, 3)}.",
        *[bound] * (made.formula.deff == most),
    )


# A predicted error, in posterior sds, beyond which intervals are mostly the prior's.
_LARGE_ERROR = 3.0
_FEW_ROWS = 30
# What bounding rows' influence may cost, in the same unit, before a person is told.
_LARGE_BIAS = 0.5


def doubts(n: int, prediction: Prediction, ranges: str = "") -> tuple[str, ...]:
    """Why an answer may be far off, or nearly the prior's; from public facts only.

    ``ranges`` is said of a prediction for other ranges than those of the run.
    """
    found = []
    if n < _FEW_ROWS:
        found.append(
            f"{n} rows are few: noise that hides one of them hides most of what they say together, and the "
            "answer is nearly the prior's."
        )
    if not prediction.rms <= _LARGE_ERROR:
        found.append(
            f"The predicted error is {number(prediction.rms, 2)} posterior sds, of synthetic people: "
            "real ones may be far easier. It is made again after the first stages, before most is spent. "
            + (ranges or "More rows, a larger ε, fewer terms or narrower ranges help.")
        )
    if prediction.bias >= _LARGE_BIAS and not ranges:
        found.append(
            f"Bounding rows' influence is expected to move effects by {number(prediction.bias, 2)} "
            "posterior sds on average, and more where few rows tell of them: rare levels, rare "
            "outcomes, long tails. Narrower ranges, levels put together, or more rows help."
        )
    return tuple(found)


# Of the squared budget, if nothing is said.
SHARE = 0.1
# Fewest and most cells. In between, a power of two, such that what noise can hide in every cell is together
# at most about a fifth of the rows: finer cells would hide, and cut, more of a long tail.
_CELLS, _HIDDEN = (8, 64), 0.2
# A bound leaves this share of the rows outside at its side, and more only as far as noise could hide it.
_TAIL, _CAUTION = 0.01, 3.3
# A range that spans more is divided evenly on the scale of logarithms.
_WIDE = 1e3


@dataclass(frozen=True)
class BoundsPlan:
    """Noised histograms of the fields with ``bounds: private``, known before anything is spent.

    Each field gets a histogram of its declared outer range, and the narrower range is read off it:
    post-processing. One budget was fixed for bounds and plan together (fully adaptive composition: the plan
    may depend on the bounds), and both are charged to the ledger at once.

    **Guarantee**: that of ``mechanism``: a row falls into one cell of each histogram. **Cost**: ``share`` of
    the squared budget.

    Attributes:
        fields: with their outer ranges.
        mechanism: of all histograms, a family each.
        whole: the target that bounds and plan meet together.
        rest: the target of what is left for the plan.
        share: of the squared budget that is spent on bounds.
    """

    fields: tuple[Field, ...]
    mechanism: SumsPlan
    whole: Target
    rest: Target
    share: float

    def beside(self, plan: Plan) -> Plan:
        """A plan for ``rest`` as part of ``whole``: one budget, and one statement of bounds and stages."""
        return replace(plan, target=self.whole, before=(self.mechanism.statement,))

    @property
    def notes(self) -> tuple[str, ...]:
        """What to know before this is spent."""
        names = [field.name for field in self.fields]
        return (
            f"Bounds of {names} are bought first, for {at_most(self.share, 3)} of the squared budget: all "
            f"together spend ε = {at_most(self.whole.epsilon, 6)}. The plan shown is for the outer "
            "ranges; what runs is planned anew.",
        )

    def marked(self, schema: Schema) -> Schema:
        """``schema`` as it is read for the histograms: missing numbers have a column that says so."""
        apart = {field.name: _marked(field) for field in self.fields}
        return replace(schema, fields=tuple(apart.get(field.name, field) for field in schema.fields))

    def sums(self, schema: Schema, columns: Fields, engine: Engine | None = None) -> FloatArray:
        """What all rows add to the histograms, exact: curator-side; ``columns`` are read as ``marked``."""
        rows = self.marked(schema).rows([field.name for field in self.fields])
        read = {name: columns[name] for name in (*rows.columns, PRESENT) if name in columns}
        return row_sums(self._cells, rows, self.mechanism, read, self.whole, False, engine)

    def _cells(self, row: Fields) -> list[tuple[jax.Array, None]]:
        """The row's cell of each field; a missing number has none, wherever it stands."""
        found = []
        for field, family in zip(self.fields, self.mechanism.families, strict=True):
            edges, value = jnp.asarray(even_edges(field, family.cells)), row[identifier(field.name)]
            cell = jnp.clip(jnp.searchsorted(edges, value, side="right") - 1, 0, family.cells - 1)
            if indicator := _marked(field).indicator:
                cell = jnp.where(row[identifier(indicator)] > 0, -1, cell)
            found.append((cell, None))
        return found

    def bought(self, schema: Schema, exact: FloatArray) -> Schema:
        """``schema`` with the ranges that noise leaves of these sums, drawn once; they are charged before."""
        counts = self.mechanism.released(self.mechanism.noised(exact))
        ranges = {field.name: _narrowed(field, one) for field, one in zip(self.fields, counts, strict=True)}
        return replace(schema, fields=tuple(ranges.get(field.name, field) for field in schema.fields))


def _marked(field: Field) -> Field:
    return field if field.missing in ("refuse", "drop", "marginal") else replace(field, missing="indicator")


def plan_bounds(
    schema: Schema, names: Sequence[str], target: Target, n: int, share: float = SHARE
) -> BoundsPlan | None:
    """What would be bought for the fields ``names`` under ``target``; ``None`` if all ranges are known.

    ``n`` is the public number of rows, or its bound; ``share`` of the squared budget pays for all bounds.
    """
    if not 0 < share < 1:
        raise DeclarationError(f"bounds_share={share}: must be between 0 and 1.")
    fields = tuple(schema[name] for name in names if schema[name].bounds == "private")
    if not fields:
        return None
    if schema.at_most > 1:
        names = [field.name for field in fields]
        raise NotYetSupported(
            f"fields {names}: bounds: private is priced for one row of each person, but {schema.person!r} "
            "may have several. Declare public bounds."
        )
    budget = accounting.gdp.budget(target.epsilon, target.delta)
    each = budget * math.sqrt(share / len(fields))
    fewest, most = _CELLS
    fine = _HIDDEN * n * each / (_CAUTION * math.sqrt(2))
    cells = min(max(2 ** math.floor(math.log2(max(fine, 1))), fewest), most)
    families = [Family(field.name, cells) for field in fields]
    mechanism = plan_sums(
        budget * math.sqrt(share), families, num_rows=n, adjacency=target.adjacency, what="counts by cell"
    )
    # Slightly less, so that rounding upwards keeps everything within the budget.
    rest = accounting.gdp.epsilon(budget * math.sqrt(1 - share), target.delta) * (1 - 1e-6)
    found = BoundsPlan(fields, mechanism, target, replace(target, epsilon=rest), share)
    # The table is read so after the charge: what this schema refuses is refused now.
    found.marked(schema)
    return found


def even_edges(field: Field, cells: int) -> npt.NDArray[np.float64]:
    """Of cells of its range, alike on a log scale where that is wide."""
    low, high = field.range
    if low > 0 and high / low > _WIDE:
        return np.geomspace(low, high, cells + 1)
    return np.linspace(low, high, cells + 1)


def _narrowed(field: Field, counts: Sums) -> Field:
    """The field with the range between its tails; the outer one where noise leaves nothing between them."""
    values = counts.values[0]
    edges = even_edges(field, len(values))
    total = max(float(values.sum()), 1.0)
    passed = np.sqrt(np.arange(1, len(values) + 1))
    # A cell that is surely not empty, or a tail that surely holds more than its share; noise is neither.
    cell = max(_TAIL * total, _CAUTION * counts.noise_sd)
    tail = _TAIL * total + _CAUTION * counts.noise_sd * passed
    first = _first((values > cell) | (np.cumsum(values) > tail))
    last = len(values) - 1 - _first((values[::-1] > cell) | (np.cumsum(values[::-1]) > tail))
    low, high = (float(edges[first]), float(edges[last + 1])) if first <= last else field.range
    if field.type in ("integer", "date"):
        low, high = max(math.floor(low), field.range[0]), min(math.ceil(high), field.range[1])
        # A count begins at 0, whatever is usual.
        low = 0.0 if field.range[0] == 0 else low
    words = "bought privately before the run, inside the declared outer range"
    # In the outer range by now, whatever the fate of others was.
    return replace(field, minimum=low, maximum=high, bounds="", bounds_from=words, outside="nearest")


def _first(flags: npt.NDArray[np.bool_]) -> int:
    return int(np.argmax(flags)) if flags.any() else 0
