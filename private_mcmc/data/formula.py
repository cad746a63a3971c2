"""``death ~ age + sex + log(kappa) + (1 | region)``, read against a schema.

What terms mean (products of categories and numbers, effects of groups) comes from the schema's declarations
and never from data, so there is no formula whose columns depend on which rows a table has.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise, product

from private_mcmc.data.expressions import Expression, basis, field_of, indicator_of, number_of
from private_mcmc.data.fields import Field, composed, identifier, is_number, plain_number, repeated
from private_mcmc.data.schema import Schema
from private_mcmc.errors import DeclarationError

_MOST_OWN = 2
# A formula may be another's, in a study: signs, terms, columns, factors of a term and effects of one.
_MOST_SIGNS, _MOST_TERMS, _MOST_COLUMNS, _MOST_FACTORS, _MOST_EFFECTS = 5_000, 2_000, 2_000, 9, 100_000


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


def _too_large(text: str, why: str) -> DeclarationError:
    shown = text if len(text) <= 80 else f"{text[:77]}…"
    return DeclarationError(f"formula {shown!r}: {why}; name the ones that matter.")


def expand(text: str, right: str) -> list[list[str]]:
    """The factors of every term of ``+ - * / : ** 0``, as in R; the intercept has none."""
    unread = DeclarationError(
        f"formula {text!r} cannot be read: terms are joined by +, as in death ~ age * sex + (1 | region); "
        "arithmetic stands in I(…), as I(age / 10), names with other signs in backticks, as `Age (years)`."
    )
    sign_of_power = "**" if "**" in right else "^"

    def products(left: list[list[str]], other: list[list[str]]) -> list[list[str]]:
        if len(left) * len(other) > _MOST_TERMS:
            raise _too_large(text, f"it stands for more than {_MOST_TERMS:,} terms")
        return _once([*a, *(word for word in b if word not in a)] for a in left for b in other)

    def crossed(left: list[list[str]], other: list[list[str]]) -> list[list[str]]:
        return _once([*left, *other, *products(left, other)])

    def terms(node: ast.expr) -> list[list[str]]:
        match node:
            case ast.Constant(1):
                return [[]]
            case ast.Name() | ast.Call():
                words = ast.unparse(node)
                return [[words.replace("**", sign_of_power)]]
            case ast.UnaryOp(ast.UAdd(), inner):
                return terms(inner)
            case ast.BinOp(left, ast.Add() | ast.Sub() as sign, right) if _is_zero(right):
                return [each for each in terms(left) if each] if isinstance(sign, ast.Add) else terms(left)
            case ast.BinOp(left, ast.Add(), right):
                first = [] if _is_zero(left) else terms(left)
                return _once([*first, *terms(right)])
            case ast.BinOp(left, ast.Sub(), right):
                gone = [set(each) for each in terms(right)]
                return [each for each in terms(left) if set(each) not in gone]
            case ast.BinOp(left, ast.MatMult(), right):
                return products(terms(left), terms(right))
            case ast.BinOp(left, ast.Mult(), right):
                return crossed(terms(left), terms(right))
            case ast.BinOp(left, ast.Div(), right):
                first = terms(left)
                every = [list(dict.fromkeys(word for each in first for word in each))]
                return _once([*first, *products(every, terms(right))])
            case ast.BinOp(left, ast.Pow(), ast.Constant(int(power))) if 0 < power <= _MOST_FACTORS:
                return reduce(crossed, [terms(left)] * power)
        raise unread

    # An intercept is there unless it is taken away.
    signs = right.replace(":", "@").replace("^", "**")
    try:
        tree = ast.parse(f"1 {'' if signs.startswith(('+', '-')) else '+'} {signs}", mode="eval").body
        found = terms(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise unread from None
    return sorted(found, key=len)


def _is_zero(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == 0 and node.value is not False


def _once(terms: Iterable[list[str]]) -> list[list[str]]:
    """Each product once, whatever the order of its factors."""
    return list({frozenset(each): each for each in reversed(list(terms))}.values())[::-1]


def terms_of(words: list[str], every: list[list[str]], schema: Schema) -> list[Term]:
    """One term, or one for every column of a basis."""
    categories: list[tuple[str, bool]] = []
    before = every[: every.index(words)]
    factors: list[list[tuple[str, Expression | None]]] = []
    for word in words:
        if (field := _category(word, schema)) is not None:
            rest = [other for other in words if other != word]
            # A level's effect is a difference to the first one's where the term without the field is there.
            # Without an intercept the first category takes its place.
            reduced = any(sorted(rest) == sorted(each) for each in every) or (
                not rest and any(_category(each[0], schema) for each in before if len(each) == 1)
            )
            categories.append((field.name, reduced))
            factors.append([(field.name, None)])
        else:
            numbers = basis(word, schema) or (number_of(word, schema),)
            factors.append([(number.text, number) for number in numbers])
    levels = math.prod(len(schema[name].all_levels) for name, _ in categories)
    if len(words) > _MOST_FACTORS or math.prod(map(len, factors)) * levels > _MOST_EFFECTS:
        raise _too_large(
            ":".join(words), f"a term has at most {_MOST_FACTORS} factors, {_MOST_EFFECTS:,} effects"
        )
    return [
        Term(
            ":".join(name for name, _ in chosen),
            tuple(categories),
            tuple(number for _, number in chosen if number is not None),
        )
        for chosen in product(*factors)
    ]


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


def _category(word: str, schema: Schema) -> Field | None:
    """The field with levels that ``region`` or ``C(region)`` is."""
    inner = re.fullmatch(r"C\((.*)\)", word)
    name = field_of(inner[1].strip() if inner else word, schema)
    if name in schema.by_name and schema[name].is_category:
        return schema[name]
    if inner:
        schema[name]
        raise DeclarationError(
            f"formula: {word!r}: {name!r} has no declared levels; list them in the schema, as "
            "constraints.enum."
        )
    return None


_GROUP = re.compile(r"\(((?:[^()|]|\([^()|]*\))+)(\|{1,2})([^()|]+)\)")
# ``trials(n) + weights(w, deff=1.4)`` beside an outcome, as in brms, and the time of an event with its flag.
_ADDED = re.compile(r"(trials|weights)\(([^(),]+)(?:,\s*deff\s*=\s*([^(),]+))?\)")
_SURV = re.compile(r"^[sS]urv\(([^(),]+),([^(),]+)(?:,\s*cuts\s*=\s*\[([^\[\]]*)\]\s*)?\)$")
_OFFSET = re.compile(r"\boffset\(((?:[^()]|\([^()]*\))*)\)")
# What would be read as something else, and what to write in its place.
_HABITS = (
    (r"~\s*\.\s*($|[+-])", "'.' would take all columns; name the terms, as in death ~ age + sex"),
    (r"\bcbind\(", "write successes | trials(n) ~ …"),
    (
        r"\b((as\.)?factor|ordered|relevel|cut|ifelse)\(",
        "levels and types are declared: declare the column in the schema (type, constraints.enum, first "
        "level first), and write its name",
    ),
    (r"~.*\bweights?\(", "weights stand beside the outcome: y | weights(w) ~ …"),
    (
        r"(?:^|[~+])\s*([\w.]+)\s*(?:\*\*|\^)\s*(\d)",
        r"a power is I(\1 ** \2): between terms the sign would mean interactions, and of one alone nothing",
    ),
)


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
        event: the field that says whether the outcome, a time, is that of the event or was cut off; or empty.
        cuts: times at which a hazard of steps may change.
        weights: the field that multiplies each row's log likelihood, or empty.
        deff: what it is divided by: ``Σw²/Σw``, public; the most that it can be if nothing is said.
    """

    text: str
    outcome: str
    intercept: bool
    terms: tuple[Term, ...]
    offset: Expression | None = None
    trials: str = ""
    event: str = ""
    cuts: tuple[float, ...] = ()
    weights: str = ""
    deff: float = 1.0

    @property
    def covariates(self) -> tuple[str, ...]:
        """Names of the fields that the predictor depends on."""
        names = [name for term in self.terms for name in term.fields]
        return tuple(dict.fromkeys([*names, *([] if self.offset is None else self.offset.fields.values())]))

    @property
    def beside(self) -> tuple[str, ...]:
        """Names of the fields beside the outcome: trials, event, weights."""
        named = (self.trials * (not self.trials.isdigit()), self.event, self.weights)
        return tuple(name for name in named if name)

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of all fields that are read, the outcome last."""
        return (*dict.fromkeys((*self.covariates, *self.beside)), self.outcome)


def read_formula(text: str, schema: Schema) -> Formula:
    """Read ``text`` against ``schema``."""
    text = composed(text)
    if len(text) > _MOST_SIGNS:
        raise _too_large(text, f"it has more than {_MOST_SIGNS:,} signs")
    for habit, instead in _HABITS:
        if found := re.search(habit, text):
            raise DeclarationError(f"formula {text!r}: {found.expand(instead)}.")
    words = _plain(text, schema)
    groups = [(match[1].strip(), match[2], match[3].strip()) for match in _GROUP.finditer(words)]
    left, tilde, right = (part.strip() for part in _GROUP.sub("", words).partition("~"))
    offsets = [match[1] for match in _OFFSET.finditer(right)]
    right = re.sub(r"^\+\s*|\+\s*(?=$|\+)", "", _OFFSET.sub("", right)).strip()
    left, _, beside = (part.strip() for part in left.partition("|"))
    added = {match[1]: match[2].strip() for match in _ADDED.finditer(beside)}
    deff = next((match[3].strip() for match in _ADDED.finditer(beside) if match[3]), "")
    if "|" in right or _ADDED.sub("", beside).strip(" +"):
        raise DeclarationError(
            f"formula {text!r}: group effects are written (1 | field) or (x | field); beside an outcome "
            "stand trials(n) and weights(w), as y | weights(w) ~ … or y | weights(w, deff=1.4) ~ …."
        )
    left, event, cuts = _event(text, left, schema)
    if not tilde or not left or "~" in right:
        raise DeclarationError(f"formula {text!r}: OUTCOME ~ TERMS, as in death ~ age + sex.")
    outcome = field_of(left, schema)
    if outcome not in schema.by_name and re.search(r"\W", outcome):
        raise DeclarationError(
            f"formula {text!r}: the outcome is a field itself, and no function of fields: compute it in the "
            "table and declare it. (Family lognormal is of the logarithm of a number above 0, gamma of the "
            "logarithm of its mean.)"
        )
    trials, weights = (field_of(added.get(word, ""), schema) for word in ("trials", "weights"))
    whole = not trials or trials.isdigit() or schema[trials].type == "integer"
    for name in (trials * (not trials.isdigit()), weights):
        if name and (schema[name].is_category or schema[name].range[0] < 0 or not whole):
            raise DeclarationError(
                f"formula {text!r}: weights are a field with a range from 0 or more; trials are one of type "
                "integer, or a number."
            )
    if deff and not (weights and is_number(deff) and plain_number(deff) > 0):
        raise DeclarationError(f"formula {text!r}: deff is a number above 0, of weights, as 1.4.")
    factors = expand(text, right or "1")
    intercept = [] in factors
    terms = [term for each in factors if each for term in terms_of(each, factors, schema)]
    for effects, bar, field in groups:
        terms += group_terms(text, effects, bar == "|", field_of(field, schema), schema)
    if len(terms) > _MOST_COLUMNS:
        raise _too_large(text, f"it has more than {_MOST_COLUMNS:,} columns")
    if twice := repeated(term.name for term in terms):
        raise DeclarationError(
            f"formula {text!r}: {twice} are there twice; (1 + x | field) has both, intercept and slope."
        )
    alone = {tuple(number.text for number in term.numbers) for term in terms if not term.categories}
    for term in terms:
        every = len(term.categories) > 1 and not any(reduced for _, reduced in term.categories)
        numbers = tuple(number.text for number in term.numbers)
        if every and not term.group and (numbers in alone or (intercept and not numbers)):
            raise DeclarationError(
                f"formula {text!r}: {term.name} without the effects of its fields beside an intercept is one "
                f"effect too many. Write {term.name.replace(':', ' * ')}, which has both, or for an effect "
                f"of every cell leave the intercept out, {outcome} ~ 0 + {term.name}."
            )
    if not terms and not intercept:
        raise DeclarationError(f"formula {text!r}: nothing stands after ~.")
    added_up = " + ".join(f"({each})" for each in offsets) if len(offsets) > 1 else "".join(offsets)
    offset = number_of(added_up, schema) if offsets else None
    used = {name for term in terms for name in term.fields} | set(offset.fields.values() if offset else ())
    if both := {outcome, event} & used:
        raise DeclarationError(f"formula {text!r}: the outcome {sorted(both)[0]!r} is also a term.")
    for name in dict.fromkeys(name for term in terms for name in term.fields):
        if schema[name].missing == "indicator" and schema[name].indicator:
            missing = indicator_of(name)
            terms.append(Term(missing.text, (), (missing,)))
    known = plain_number(deff) if deff else schema[weights].range[1] if weights else 1.0
    read = Formula(text, outcome, intercept, tuple(terms), offset, trials, event, cuts, weights, known)
    for name in read.beside:
        if schema[name].missing in ("indicator", "marginal"):
            raise DeclarationError(
                f"formula {text!r}: of {name!r} missing is refuse, drop, middle or a value."
            )
    return read


def _event(text: str, left: str, schema: Schema) -> tuple[str, str, tuple[float, ...]]:
    """The outcome of ``surv(time, event, cuts=[…])``, its event and the cuts; another outcome as it is."""
    if not left.lower().startswith("surv("):
        return left, "", ()
    match = _SURV.match(left)
    cuts = [cut.strip() for cut in (match[3] or "").split(",") if cut.strip()] if match else [""]
    if match is None or not all(map(is_number, cuts)):
        raise DeclarationError(
            f"formula {text!r}: surv(time, event) ~ …, or with numbers at which a hazard of steps may "
            "change, surv(time, event, cuts=[30, 90]) ~ …."
        )
    time, event = (field_of(match[place].strip(), schema) for place in (1, 2))
    field, numbers = schema[event], tuple(map(float, cuts))
    category = field.is_category
    levels = len(field.all_levels) if category else 2 * (field.type == "integer" and field.range == (0, 1))
    if levels != 2 or time == event:
        raise DeclarationError(
            f"formula {text!r}: the event {event!r} needs two levels, of which the second is that it was "
            "seen, or an integer 0 to 1."
        )
    low, high = schema[time].range if not schema[time].is_category else (0.0, 0.0)
    if any(not low < cut < high for cut in numbers) or any(a >= b for a, b in pairwise(numbers)):
        raise DeclarationError(f"formula {text!r}: cuts rise, inside the range of {time!r}.")
    return identifier(time), event, numbers


def _plain(text: str, schema: Schema) -> str:
    """``text`` with every field's name as a Python name: ``sample.yr`` and `` `body mass` `` too."""
    for name in sorted(schema.by_name, key=len, reverse=True):
        word = identifier(name)
        if name not in text:
            continue
        text = text.replace(f"`{name}`", word)
        if word != name and re.fullmatch(r"[\w.]+", name):
            text = re.sub(rf"(?<![\w.`]){re.escape(name)}(?![\w.(`])", word, text)
    return text
