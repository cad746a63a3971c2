"""What is asked of a table, before it is looked at: a formula or a model, against a schema."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from private_mcmc.data.answers import Answers
from private_mcmc.data.design import Design, design
from private_mcmc.data.families import family as family_of
from private_mcmc.data.fields import identifier
from private_mcmc.data.formula import read_formula
from private_mcmc.data.schema import Schema
from private_mcmc.data.source import compile_model, model_source
from private_mcmc.domains import Rows
from private_mcmc.errors import DeclarationError
from private_mcmc.planning.coefficients import Named
from private_mcmc.records import Model


@dataclass(frozen=True, eq=False)
class Question:
    """What is asked of a table, before it is looked at.

    Attributes:
        schema: of the table.
        fields: those that the model reads.
        rows: their domains.
        model: the NumPyro model.
        source: its text, as it runs.
        formula: as stated, or empty.
        family: its family's name, or empty.
        priors: as stated.
        design: what the formula was read as, or ``None``.
        notes: what to know of it before anything is spent.
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
    def norm(self) -> float | None:
        """Bound of the norm of a row's design."""
        return None if self.design is None else self.design.norm

    @property
    def units(self) -> dict[str, str]:
        """Of the coefficients, by name; empty for a model of one's own."""
        return {} if self.design is None else Answers(self.design, {}).units

    @property
    def coefficients(self) -> Named | None:
        """From draws of the model's sites to draws of coefficients in the user's units, by name."""
        found = self.design
        return None if found is None else lambda draws: Answers(found, draws).by_name

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
    """The model of a formula, or one whose arguments are fields of the schema.

    Raises:
        DeclarationError: for a formula, a family, a prior or a field that does not fit the schema.
    """
    if (formula is None) == (model is None):
        raise DeclarationError("give a formula, as 'death ~ age + sex', or a model; one of them.")
    if not isinstance(formula, str | None):
        instead = "model=…" if callable(formula) else "a text, as in 'death ~ age + sex'"
        raise DeclarationError(f"formula: a {type(formula).__name__} was given; give {instead}.")
    if isinstance(priors, Mapping):
        raise DeclarationError("priors: a list of texts, as ['age ~ normal(0, 0.1)', 'sigma = 12'].")
    priors = [priors] if isinstance(priors, str) else priors
    if formula is not None:
        made = design(read_formula(formula, schema), schema, family_of(family), priors)
        source, fields = model_source(made), made.formula.fields
        return Question(
            schema,
            fields,
            schema.rows(fields),
            compile_model(source),
            source,
            formula,
            made.family.name,
            tuple(priors),
            made,
            _notes(made),
        )
    if model is None:
        raise DeclarationError("give a formula or a model.")
    if priors:
        raise DeclarationError("priors are those of the model: change them in its source.")
    names = {identifier(field.name): field.name for field in schema.fields if field.is_used}
    extra = {identifier(field.indicator): field.name for field in schema.fields if field.indicator}
    wanted = list(inspect.signature(model).parameters)
    if unknown := [name for name in wanted if name not in names and name not in extra]:
        raise DeclarationError(
            f"model: arguments {unknown} are no fields of the schema; it has {sorted(names)}."
        )
    fields = tuple(dict.fromkeys(names.get(name) or extra[name] for name in wanted))
    every = schema.rows(fields)
    if ignored := sorted(set(every.columns) - set(wanted)):
        raise DeclarationError(f"model: take {ignored} as arguments too: they say which numbers are missing.")
    try:
        source = inspect.getsource(inspect.unwrap(model))
    except (OSError, TypeError):
        source = ""
    return Question(schema, fields, every, model, source)


def _notes(made: Design) -> tuple[str, ...]:
    return tuple(
        f"{name} is taken to be {made.parameters[name]}, nothing was said of it. State what is known, as "
        f"the prior {name} = {made.parameters[name]}, or have it estimated, as {name} ~ halfnormal(…)."
        for name in made.unsaid
    )
