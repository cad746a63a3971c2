"""``death ~ age + sex + log(kappa) + (1 | region)``: read with formulaic, against a schema.

Formulaic expands the operators (``+ - * : ** 0``); what terms mean comes from the schema's declarations and
never from data, so there is no formula whose columns depend on which rows a table has.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from private_mcmc.data.expressions import Expression
from private_mcmc.data.fields import Field, identifier
from private_mcmc.data.schema import Schema
from private_mcmc.errors import DeclarationError

_GROUP = re.compile(r"\(([^()|]+)\|{1,2}([^()|]+)\)")
_TRIALS = re.compile(r"^(.+?)\|\s*trials\(([^()]+)\)$")
_OFFSET = re.compile(r"\boffset\(((?:[^()]|\([^()]*\))*)\)")
# Habits of other programs, and what to write in their place.
_HABITS = (
    (r"~\s*\.\s*($|[+-])", "'.' would take all columns; name the terms, as in death ~ age + sex"),
    (r"\bcbind\(", "write successes | trials(n) ~ …"),
    (
        r"\b(factor|as\.factor|ordered)\(",
        "levels are declared in the schema (constraints.enum); write the name",
    ),
    (r"\bte?\(|\bs\(|\bsmooth\(", "smooth terms are learnt from rows; write I(x ** 2), or declare levels"),
    (r"\bweights?\(", "weights are not taken: how much a row counts would be private"),
    (r"\bSurv\(", "survival times are not taken; model an event as bernoulli, or counts with an offset"),
)


@dataclass(frozen=True)
class Term:
    """A product of categories and numbers.

    Attributes:
        name: as results show it, for example ``sex:age`` or ``1 | region``.
        categories: fields with levels, and whether their first level is the reference, with effect zero.
        number: what the levels' effects are multiplied by.
        group: the field of a group-level term, or empty.
    """

    name: str
    categories: tuple[tuple[str, bool], ...]
    number: Expression | None
    group: str = ""

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the fields that the term reads."""
        numbers = () if self.number is None else tuple(self.number.fields.values())
        return (*(name for name, _ in self.categories), *numbers)


@dataclass(frozen=True)
class Formula:
    """A formula whose every name is declared.

    Attributes:
        text: as the user wrote it.
        outcome: name of the outcome's field.
        intercept: whether there is one.
        terms: in the order of the formula; indicators of missing numbers follow their fields.
        offset: added to the predictor as it is, or ``None``.
        trials: of a binomial outcome: a field's name or a number, or empty.
    """

    text: str
    outcome: str
    intercept: bool
    terms: tuple[Term, ...]
    offset: Expression | None = None
    trials: str = ""

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of all fields that are read, the outcome last."""
        names = dict.fromkeys(name for term in self.terms for name in term.fields)
        names |= dict.fromkeys([] if self.offset is None else self.offset.fields.values())
        names |= dict.fromkeys([self.trials] if self.trials and not self.trials.isdigit() else [])
        return (*(name for name in names if name != self.outcome), self.outcome)


def read_formula(text: str, schema: Schema) -> Formula:
    """Read ``text`` against ``schema``.

    Raises:
        DeclarationError: for what is no formula, a name that is not declared, or a term that would have to
            be estimated from the data.
    """
    for habit, instead in _HABITS:
        if re.search(habit, text):
            raise DeclarationError(f"formula {text!r}: {instead}.")
    words = _plain(text, schema)
    groups = [(match[1].strip(), match[2].strip()) for match in _GROUP.finditer(words)]
    left, tilde, right = (part.strip() for part in _GROUP.sub("", words).partition("~"))
    offsets = [match[1] for match in _OFFSET.finditer(right)]
    right = re.sub(r"^\+\s*|\+\s*(?=$|\+)", "", _OFFSET.sub("", right)).strip()
    trials = match[2].strip() if (match := _TRIALS.match(left)) else ""
    left = match[1].strip() if match else left
    if "|" in left + right:
        raise DeclarationError(f"formula {text!r}: group effects are written (1 | field) or (x | field).")
    if not tilde or not left or "~" in right:
        raise DeclarationError(f"formula {text!r}: OUTCOME ~ TERMS, as in death ~ age + sex.")
    outcome = _field(left, schema)
    if outcome not in schema.by_name and re.search(r"\W", outcome):
        raise DeclarationError(
            f"formula {text!r}: the outcome is a field itself, and no function of fields: compute it in the "
            "table and declare it."
        )
    schema[outcome]
    if trials and not trials.isdigit():
        trials = _count(_field(trials, schema), text, schema)
    factors = _expand(text, right or "1")
    intercept = [] in factors
    terms: list[Term] = []
    for each in factors:
        if each:
            terms.append(_term(each, factors, schema))
    for effects, field in groups:
        terms.extend(_group_terms(text, effects, _field(field, schema), schema))
    if not terms and not intercept:
        raise DeclarationError(f"formula {text!r}: nothing stands after ~.")
    offset = _offset(offsets, schema)
    used = {name for term in terms for name in term.fields} | set(offset.fields.values() if offset else ())
    if outcome in used:
        raise DeclarationError(f"formula {text!r}: the outcome {outcome!r} is also a term.")
    for name in dict.fromkeys(name for term in terms for name in term.fields):
        if schema[name].missing == "indicator" and schema[name].indicator:
            word = f"{name}_missing"
            shown = Expression(f"{name} missing", Expression.of_field(word).tree, {identifier(word): name})
            terms.append(Term(f"{name} missing", (), shown))
    return Formula(text, outcome, intercept, tuple(terms), offset, trials)


def _offset(texts: list[str], schema: Schema) -> Expression | None:
    """All offsets as one expression; a missing cell counts in them as its field declares."""
    if not texts:
        return None
    found = _number(" + ".join(f"({text})" for text in texts) if len(texts) > 1 else texts[0], schema)
    found.bounds(ranges(schema, found))
    return found


def _count(name: str, text: str, schema: Schema) -> str:
    field = schema[name]
    if field.is_category or field.type != "integer" or not field.range[0] >= 0:
        raise DeclarationError(
            f"formula {text!r}: trials are a number, or a field of type integer with a minimum of at least 0."
        )
    return name


def _plain(text: str, schema: Schema) -> str:
    """``text`` with every field's name as a Python name: ``sample.yr`` and `` `body mass` `` too."""
    for name in sorted(schema.by_name, key=len, reverse=True):
        word = identifier(name)
        text = text.replace(f"`{name}`", word)
        if word != name and re.fullmatch(r"[\w.]+", name):
            text = re.sub(rf"(?<![\w.`]){re.escape(name)}(?![\w.(`])", word, text)
    return text


def ranges(schema: Schema, expression: Expression) -> dict[str, tuple[float, float]]:
    """Public ranges of the fields of an expression, by Python name."""
    found = {}
    for word, name in expression.fields.items():
        found[word] = (0.0, 1.0) if word != identifier(name) else schema[name].range
    return found


def _expand(text: str, right: str) -> list[list[str]]:
    """The factors of every term; the intercept has none."""
    import formulaic
    from formulaic.errors import FormulaicError

    try:
        terms = list(formulaic.Formula(f"~ {right}"))
        return [[factor.expr for factor in term.factors if factor.expr != "1"] for term in terms]
    except (FormulaicError, SyntaxError, AttributeError, KeyError, TypeError, ValueError, RecursionError):
        raise DeclarationError(
            f"formula {text!r} cannot be read: terms are joined by +, as in death ~ age * sex + (1 | region)."
        ) from None


def _term(words: list[str], every: list[list[str]], schema: Schema) -> Term:
    categories: list[tuple[str, bool]] = []
    number: Expression | None = None
    names: list[str] = []
    for word in words:
        if (field := _category(word, schema)) is not None:
            rest = [other for other in words if other != word]
            # A level's effect is a difference to the first one's where the term without the field is there.
            # Without an intercept the first category takes its place.
            reduced = any(sorted(rest) == sorted(each) for each in every) or (
                not rest and any(_alone(each, schema) for each in every[: every.index(words)])
            )
            categories.append((field.name, reduced))
            names.append(field.name)
        else:
            found = _number(word, schema)
            names.append(found.text)
            number = found if number is None else number.times(found)
    return Term(":".join(names), tuple(categories), number)


def _alone(words: list[str], schema: Schema) -> bool:
    return len(words) == 1 and _category(words[0], schema) is not None


def _group_terms(text: str, effects: str, field: str, schema: Schema) -> list[Term]:
    if not schema[field].is_category:
        raise DeclarationError(
            f"formula {text!r}: {field!r} is no category; groups need declared levels (constraints.enum)."
        )
    found = []
    for words in _expand(text, effects):
        if not words:
            found.append(Term(f"1 | {field}", ((field, False),), None, field))
            continue
        term = _term(words, [words], schema)
        found.append(Term(f"{term.name} | {field}", (*term.categories, (field, False)), term.number, field))
    return found


def _field(word: str, schema: Schema) -> str:
    """The name of the field that a Python name stands for; the word itself where there is none."""
    return next((name for name in schema.by_name if identifier(name) == word), word)


def _bare(word: str, schema: Schema) -> str:
    inner = word[2:-1].strip() if word.startswith("C(") and word.endswith(")") else word
    return _field(inner, schema)


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


def _number(word: str, schema: Schema) -> Expression:
    name = _field(word, schema)
    if name in schema.by_name or word.isidentifier():
        field = schema[name]
        return Expression.of_field(field.name, field.transform)
    found = Expression.parse(word, _numbers(schema))
    shown = word
    for plain, own in found.fields.items():
        shown = re.sub(rf"\b{plain}\b", own, shown)
    return replace(found, text=shown)


def _numbers(schema: Schema) -> Mapping[str, str]:
    used = (field for field in schema.fields if field.is_used and not field.is_category)
    return {identifier(field.name): field.name for field in used}
