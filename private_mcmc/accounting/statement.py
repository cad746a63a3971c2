"""A privacy statement: curves that hold, and the argument that proves them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest

from private_mcmc.accounting.curves import Curve, Gaussian, curve_of
from private_mcmc.accounting.risk import Shown
from private_mcmc.errors import DeclarationError, PrivateMCMCError
from private_mcmc.records import Constants, Record, plain, unplain
from private_mcmc.target import Adjacency, Unit, check_adjacency, check_count

# A rule whose numbers do not show the adjacency that they are for quotes it, so that a record with another
# adjacency written into it has another sentence.
RELATION: Mapping[Adjacency, str] = {
    "replace_one": "the numbers are for one row replaced by another; the number of rows is public",
    "add_remove": "the numbers are for one row added or removed; the number of rows is private",
    "zero_out": "the numbers are for one slot emptied: it keeps its place and adds exactly 0 to every sum",
}
NOT_PRIVATE = "NOT PRIVATE to anyone who knows the seed, which the caller gave"
PERSONS = "what is called a row here is "


def of_persons(unit: Unit) -> str:
    """What makes a statement one of persons: its adjacency and every sentence of it speak of them."""
    return (
        f"{PERSONS}{unit}: further rows of a person are left out by a rule that sees that person's rows alone"
    )


@dataclass(frozen=True)
class Argument:
    """Why a statement holds.

    Attributes:
        theorem: the result used, with its source.
        assumptions: what it needs, each in one sentence.
        constants: the numbers that go in; the statement can be made again from them alone.
        rule: name of the function that makes it.
    """

    theorem: str
    assumptions: tuple[str, ...]
    constants: Constants
    rule: str

    def __post_init__(self) -> None:
        words = (self.theorem, self.rule, *self.assumptions)
        if not (isinstance(self.constants, Mapping) and all(isinstance(each, str) for each in words)):
            raise DeclarationError("an argument: a theorem, assumptions, constants by name, and a rule.")


@dataclass(frozen=True)
class Statement(Shown):
    """``P[A|D] ≤ e^ε P[A|D'] + δ(ε)`` for all events and all pairs adjacent under ``adjacency``.

    **Guarantee**: every curve in ``curves`` holds, so their pointwise minimum does; numbers are
    rounded up. **Assumptions**: those quoted in ``argument`` (and in the parts of a composition).

    Attributes:
        adjacency: the relation between data sets.
        curves: valid bounds, each for the whole mechanism.
        argument: theorem, assumptions and constants.
        parts: the statements this one composes, if it is a composition.
        mechanism: identity of the run it speaks of; statements of one mechanism do not compose.
        unit: what ``adjacency`` calls a row where that is a person with several rows.

    Raises:
        DeclarationError: for parts under another adjacency, of another unit, or of one run.

    Example:
        >>> price = pmc.accounting.gaussian(adjacency="replace_one", sensitivity=1.0, scale=2.0)
        >>> price.gdp, round(price.epsilon(1e-6), 3), price.verify()
        (0.5, 2.254, True)
        >>> pmc.Statement.from_dict(price.to_dict()) == price
        True
    """

    adjacency: Adjacency
    curves: tuple[Curve, ...]
    argument: Argument
    parts: tuple[Statement, ...] = ()
    mechanism: str | None = None
    unit: Unit | None = None

    def __post_init__(self) -> None:
        check_adjacency(self.adjacency)
        if not self.curves:
            raise DeclarationError("a statement needs at least one curve.")
        for part in self.parts:
            if part.adjacency != self.adjacency:
                raise DeclarationError(
                    f"statements under {self.adjacency!r} and {part.adjacency!r} do not compose: state both "
                    "under one adjacency."
                )
        if common_unit((self, *self.parts)) != self.unit:
            raise DeclarationError("a statement protects persons with at least as many rows as its parts do.")
        names = self.mechanisms
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise DeclarationError(
                f"mechanism {repeated[0]!r} is there twice: one chain is one mechanism, its releases share "
                "randomness and their statements do not compose."
            )

    def delta(self, epsilon: float) -> float:
        """The smallest certified ``δ`` at ``epsilon ≥ 0``."""
        return min(curve.delta(epsilon) for curve in self.curves)

    def epsilon(self, delta: float) -> float:
        """The smallest certified ``ε`` at ``delta``; ``inf`` if there is none."""
        return min(curve.epsilon(delta) for curve in self.curves)

    @property
    def gdp(self) -> float | None:
        """``m`` of the smallest Gaussian curve; ``None`` where no Gaussian DP bound is certified."""
        values = [curve.m for curve in self.curves if isinstance(curve, Gaussian)]
        return min(values) if values else None

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """Identities of every run this statement speaks of."""
        own = () if self.mechanism is None else (self.mechanism,)
        return own + tuple(name for part in self.parts for name in part.mechanisms)

    def of(self, mechanism: str) -> Statement:
        """The same statement, tied to the run ``mechanism``."""
        return replace(self, mechanism=mechanism)

    def verify(self) -> bool:
        """Whether the curves are those that the constants give, starting from the JSON."""
        return bool(verify(self.to_dict()))

    def to_dict(self) -> Record:
        """Plain JSON types; ``from_dict`` restores an equal statement."""
        given = vars(self) | {"argument": vars(self.argument), "unit": self.unit and vars(self.unit)}
        return dict(plain(given))

    @classmethod
    def from_dict(cls, record: Constants) -> Statement:
        """Inverse of ``to_dict``.

        Raises:
            DeclarationError: for a record that no statement writes. Whether its numbers are true is for
                ``verify`` to say.
        """
        try:
            given = unplain(record)
            read = {
                "curves": tuple(map(curve_of, given["curves"])),
                "argument": Argument(**given["argument"]),
            }
            unit = None if given["unit"] is None else Unit(**given["unit"])
            made = cls(**{**given, **read, "parts": tuple(map(cls.from_dict, given["parts"])), "unit": unit})
            if made.to_dict() != plain(given):
                raise DeclarationError("the record of a statement has other fields than a statement writes.")
        except RecursionError as error:
            raise DeclarationError("the record of a statement is nested too deeply.") from error
        except DeclarationError:
            raise
        except (LookupError, AttributeError, TypeError, ValueError, ArithmeticError) as error:
            raise DeclarationError(f"this is not the record of a statement: {error}") from error
        return made


def common_unit(statements: Iterable[Statement]) -> Unit | None:
    """What all of these protect together: persons by one identifier, with the most rows of any of them.

    A person's further rows are left out by a rule that looks at that person's rows alone, so that a statement
    for up to ``k`` rows holds for persons with more of them.
    """
    units = [statement.unit for statement in statements]
    if len({None if unit is None else unit.name for unit in units}) > 1:
        kinds = {"a row" if unit is None else f"a person by {unit.name!r}" for unit in units}
        named = " and ".join(sorted(kinds))
        raise DeclarationError(
            f"statements that protect {named} do not compose: state all for the same unit."
        )
    return max((unit for unit in units if unit is not None), key=lambda unit: unit.rows, default=None)


def of_unit(statement: Statement, unit: Unit | None) -> Statement:
    """The same statement of persons, where all its numbers are for a person in the place of a row."""
    if unit is None:
        return statement
    given = (line for line in statement.argument.assumptions if not line.startswith(PERSONS))
    argument = replace(statement.argument, assumptions=(of_persons(unit), *given))
    parts = tuple(of_unit(part, unit) for part in statement.parts)
    return replace(statement, argument=argument, parts=parts, unit=unit)


# What makes a statement of each rule again, from constants, parts, adjacency and unit.
RULES: dict[str, Callable[[Statement], Statement]] = {}


def stated(
    rule: str,
    theorem: str,
    lines: Iterable[str],
    constants: Record,
    *curves: Curve,
    adjacency: Adjacency,
    num_rows: int | None = None,
    parts: tuple[Statement, ...] = (),
    unit: Unit | None = None,
) -> Statement:
    """The statement by a ``rule``, which quotes whom its numbers are for, whatever the rule.

    Where the number of rows is private, sensitivities, their rounding and constants of potentials are those
    for a public bound on it: without ``num_rows`` nothing is stated. A budget's rests on that of its parts.
    """
    said = [*(() if unit is None else (of_persons(unit),)), *lines, RELATION[check_adjacency(adjacency)]]
    if num_rows is not None:
        check_count("num_rows", num_rows)
        constants = constants | {"num_rows": num_rows}
        said += [f"no data set has more than n = {num_rows} rows"] * (adjacency == "add_remove")
    elif adjacency == "add_remove" and rule != "adaptive":
        raise DeclarationError("num_rows: under add_remove, give the public bound that the numbers are for.")
    argument = Argument(theorem, tuple(dict.fromkeys(said)), constants, rule)
    return Statement(adjacency, curves, argument, parts=parts, unit=unit)


def again(make: Callable[..., Statement]) -> Callable[[Statement], Statement]:
    """What makes statements without parts again: their constants are the arguments of ``make``."""
    return lambda given: of_unit(make(adjacency=given.adjacency, **given.argument.constants), given.unit)


_TOLERANCE = 1e-9
# Squares of numbers below this leave the normal floats, and bounds of them are rounded up by more.
_TINY = 1e-150


@dataclass(frozen=True)
class Verification:
    """Whether the numbers of a statement follow from its constants; truthy if they do."""

    ok: bool
    reason: str

    def __bool__(self) -> bool:
        return self.ok


def verify(record: Constants) -> Verification:
    """Check ``Statement.to_dict()`` output, also after a JSON round trip; never raises.

    A statement is made again from the record's constants and parts: it has these constants, no others, every
    curve, and says the same, word by word. That the assumptions themselves are true (the constants right, the
    chain run as declared) numbers cannot show.
    """
    try:
        statement = Statement.from_dict(record)
        _check(statement)
    except RecursionError:
        return Verification(False, "the record is nested too deeply.")
    except (PrivateMCMCError, LookupError, AttributeError, TypeError, ValueError, ArithmeticError) as error:
        return Verification(False, str(error))
    return Verification(True, f"rule {statement.argument.rule!r}: every curve follows from the constants.")


def _check(statement: Statement) -> None:
    name = statement.argument.rule
    if name not in RULES:
        raise DeclarationError(f"no function is known for the rule {name!r}.")
    for index, part in enumerate(statement.parts):
        try:
            _check(part)
        except DeclarationError as error:
            raise DeclarationError(f"part {index}: {error}") from error
    try:
        with warnings.catch_warnings():
            # Extreme constants may overflow on the way; what comes out is compared all the same.
            warnings.simplefilter("ignore", RuntimeWarning)
            due = RULES[name](statement)
    except (PrivateMCMCError, LookupError, AttributeError, TypeError, ValueError, ArithmeticError) as error:
        raise DeclarationError(
            f"rule {name!r}: the constants are incomplete or contradict each other ({error})."
        ) from error
    # Beside what its rule says a statement may say that its seed was given.
    lines = tuple(line for line in statement.argument.assumptions if line != NOT_PRIVATE)
    argument = replace(statement.argument, assumptions=lines)
    said, wanted = ((one.theorem, *one.assumptions) for one in (argument, due.argument))
    for line, other in zip_longest(said, wanted):
        if line != other:
            raise DeclarationError(f"it says {line!r} in the place of {other!r}: it cannot be verified.")
    if replace(statement, argument=argument, curves=due.curves, mechanism=None) != due:
        raise DeclarationError(f"rule {name!r}: constants, parts or persons are not of such a statement.")
    if not same([each.to_dict() for each in statement.curves], [each.to_dict() for each in due.curves]):
        raise DeclarationError(f"rule {name!r}: the constants do not give these curves.")


def same(found: object, wanted: object) -> bool:
    """Whether two records have equal fields, numbers up to what two machines round."""
    if isinstance(found, Mapping) and isinstance(wanted, Mapping):
        return found.keys() == wanted.keys() and all(same(found[key], wanted[key]) for key in wanted)
    if isinstance(found, (tuple, list)) and isinstance(wanted, (tuple, list)):
        return len(found) == len(wanted) and all(map(same, found, wanted))
    if type(found) in (int, float) and isinstance(wanted, float):
        # Of every field of a curve the larger number is the weaker claim.
        tiny = 0 <= wanted <= found <= _TINY  # type: ignore[operator]
        return tiny or math.isclose(found, wanted, rel_tol=_TOLERANCE, abs_tol=0.0)  # type: ignore[arg-type]
    return type(found) is type(wanted) and found == wanted
