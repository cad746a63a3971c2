"""The terms of a formula, against a schema: products of categories and numbers, and effects of groups."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from itertools import product

from private_mcmc.data.bases import basis
from private_mcmc.data.expressions import Expression
from private_mcmc.data.fields import Field, identifier
from private_mcmc.data.schema import Schema
from private_mcmc.errors import DeclarationError

_MOST_OWN = 2


@dataclass(frozen=True)
class Term:
    """A product of categories and numbers.

    Attributes:
        name: as results show it, for example ``sex:age`` or ``1 | region``.
        categories: fields with levels, and whether their first level is the reference, with effect zero.
        numbers: what the levels' effects are multiplied by.
        group: the field of a group-level term, or empty.
        own: whether the group is the person who is protected, whose effects are integrated out.
        together: names of the group's terms whose effects are correlated with these, these among them.
    """

    name: str
    categories: tuple[tuple[str, bool], ...]
    numbers: tuple[Expression, ...]
    group: str = ""
    own: bool = False
    together: tuple[str, ...] = ()

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the fields that the term reads."""
        numbers = (name for number in self.numbers for name in number.fields.values())
        return (*(name for name, _ in self.categories), *numbers)

    @property
    def number(self) -> Expression | None:
        """The product of the numbers."""
        return reduce(Expression.times, self.numbers) if self.numbers else None


def ranges(schema: Schema, expression: Expression) -> dict[str, tuple[float, float]]:
    """Public ranges of the fields of an expression, by Python name."""
    found = {}
    for word, name in expression.fields.items():
        found[word] = (0.0, 1.0) if word != identifier(name) else schema[name].range
    return found


def expand(text: str, right: str) -> list[list[str]]:
    """The factors of every term; the intercept has none."""
    import formulaic
    from formulaic.errors import FormulaicError

    try:
        terms = list(formulaic.Formula(f"~ {right}"))
        return [[factor.expr for factor in term.factors if factor.expr != "1"] for term in terms]
    except (FormulaicError, SyntaxError, AttributeError, KeyError, TypeError, ValueError, RecursionError):
        raise DeclarationError(
            f"formula {text!r} cannot be read: terms are joined by +, as in death ~ age * sex + "
            "(1 | region); arithmetic stands in I(…), as I(age / 10), and names with other signs in "
            "backticks, as `Age (years)`."
        ) from None


def terms_of(words: list[str], every: list[list[str]], schema: Schema) -> list[Term]:
    """One term, or one for every column of a basis."""
    categories: list[tuple[str, bool]] = []
    factors: list[list[tuple[str, Expression | None]]] = []
    for word in words:
        if (field := _category(word, schema)) is not None:
            rest = [other for other in words if other != word]
            # A level's effect is a difference to the first one's where the term without the field is there.
            # Without an intercept the first category takes its place.
            reduced = any(sorted(rest) == sorted(each) for each in every) or (
                not rest and any(_alone(each, schema) for each in every[: every.index(words)])
            )
            categories.append((field.name, reduced))
            factors.append([(field.name, None)])
        else:
            factors.append([(number.text, number) for number in _numbers_of(word, schema)])
    return [
        Term(
            ":".join(name for name, _ in chosen),
            tuple(categories),
            tuple(number for _, number in chosen if number is not None),
        )
        for chosen in product(*factors)
    ]


def _alone(words: list[str], schema: Schema) -> bool:
    return len(words) == 1 and _category(words[0], schema) is not None


def group_terms(text: str, effects: str, correlated: bool, field: str, schema: Schema) -> list[Term]:
    """The terms of ``(effects | field)``, or with two bars where they are not ``correlated``."""
    own = field == schema.person and schema.at_most > 1
    if not own and not schema[field].is_category:
        raise DeclarationError(
            f"formula {text!r}: {field!r} is no category; groups need declared levels (constraints.enum). If "
            f"it tells persons apart: role: person, and person: {{field: {field}, at_most: …}}."
        )
    level = () if own else ((field, False),)
    found = []
    for words in expand(text, effects):
        if not words:
            found.append(Term(f"1 | {field}", level, (), field, own))
            continue
        for term in terms_of(words, [words], schema):
            if own and term.categories:
                raise DeclarationError(
                    f"formula {text!r}: an effect of each {field!r} is an intercept or a number's slope, no "
                    f"effect of levels; declare {term.name!r} as a number (0 and 1), or leave it out."
                )
            found.append(Term(f"{term.name} | {field}", (*term.categories, *level), term.numbers, field, own))
    if own and len(found) > _MOST_OWN:
        raise DeclarationError(
            f"formula {text!r}: at most {_MOST_OWN} effects of each {field!r} are integrated out, as in "
            f"(1 + x | {field})."
        )
    if not correlated or len(found) == 1:
        return found
    names = tuple(term.name for term in found)
    if len(found) > 2 or any(len(term.categories) > 1 for term in found):
        raise DeclarationError(
            f"formula {text!r}: correlations are between the intercept and one slope, (1 + x | {field}); "
            f"write ({effects} || {field}), whose effects are independent."
        )
    return [replace(term, together=names) for term in found]


def field_of(word: str, schema: Schema) -> str:
    """The name of the field that a Python name stands for; the word itself where there is none."""
    return next((name for name in schema.by_name if identifier(name) == word), word)


def _bare(word: str, schema: Schema) -> str:
    inner = word[2:-1].strip() if word.startswith("C(") and word.endswith(")") else word
    return field_of(inner, schema)


def _category(word: str, schema: Schema) -> Field | None:
    name = _bare(word, schema)
    field = schema.by_name.get(name)
    if field is None or not field.is_category:
        if word.startswith("C("):
            schema[name]
            raise DeclarationError(
                f"formula: {word!r}: {name!r} has no declared levels; list them in the schema, as "
                "constraints.enum."
            )
        return None
    return schema[name]


def number_of(word: str, schema: Schema) -> Expression:
    """A field or an expression, with the fields' own names in its text."""
    name = field_of(word, schema)
    if name in schema.by_name or word.isidentifier():
        field = schema[name]
        return Expression.of_field(field.name, field.transform)
    found = Expression.parse(word, _numbers(schema))
    shown = word
    for plain, own in found.fields.items():
        shown = re.sub(rf"\b{plain}\b", own, shown)
    return replace(found, text=shown)


def _numbers_of(word: str, schema: Schema) -> tuple[Expression, ...]:
    """One number, or the columns of a basis."""
    made = basis(
        word, lambda inner: number_of(inner, schema), lambda inner: inner.bounds(ranges(schema, inner))
    )
    return (number_of(word, schema),) if made is None else made


def _numbers(schema: Schema) -> Mapping[str, str]:
    used = (field for field in schema.fields if field.is_used and not field.is_category)
    return {identifier(field.name): field.name for field in used}
