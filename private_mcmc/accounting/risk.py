"""What a statement means to one person: what somebody who knows every other row can come to believe."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol

from private_mcmc.arguments import remarks_on_delta
from private_mcmc.report import Code, Details, Line, Plot, Report, Rule, Text, Verdict, at_most, rounded_up
from private_mcmc.target import Adjacency, Unit

if TYPE_CHECKING:
    from rich.console import Console

OFTEN = 0.05
# Shares of a probability that are tried as the δ of the bound.
_SHARES = (0.9, 0.75, 0.5, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01, 0.003, 0.001)

_WHOM = {
    "replace_one": "one person's row is replaced by any other; the number of rows is public",
    "add_remove": "one person's row is there or not; the number of rows is private",
    "zero_out": "one person's slot holds a row or is empty; the number of slots is public",
}
_SECRET = {
    "replace_one": "that your row is the true one, rather than one other that they have in mind",
    "add_remove": "that you are among the people in the data",
    "zero_out": "that your slot is not empty",
}


class Bounded(Protocol):
    """A statement, or one of its curves."""

    def delta(self, epsilon: float) -> float:
        """The smallest certified ``δ`` at ``epsilon``."""
        ...

    def epsilon(self, delta: float) -> float:
        """The smallest certified ``ε`` at ``delta``."""
        ...


@dataclass(frozen=True)
class Risk:
    """What is learnt, at most, of one row by somebody who knows all others: upper bounds.

    With ``L`` the log likelihood ratio of the truth to its alternative, ``P(L > t) ≤ δ(s)/(1 − e^{s−t})``
    for every ``s < t``, since ``P(L > t)(1 − e^{s−t}) ≤ P(L > t) − e^s P'(L > t) ≤ δ(s)``.

    Attributes:
        right: probability of a right guess between two equally likely cases: ``(1 + δ(0))/2``.
        usual: what ``L`` exceeds in at most one release of twenty.
        rare: what ``L`` exceeds with probability at most ``chance``.
        chance: the target's δ; 0 if ``rare`` is never exceeded.
    """

    right: float
    usual: float
    rare: float
    chance: float

    def belief(self, before: float, usually: bool = False) -> float:
        """The belief in the truth that ``before``, in (0, 1), becomes at most: usually, or nearly always."""
        odds = math.log(before / (1 - before)) + (self.usual if usually else self.rare)
        return 1 / (1 + math.exp(-min(odds, 700.0)))

    def to_dict(self) -> dict[str, float]:
        """Plain numbers."""
        return asdict(self)


def risk(statement: Bounded, delta: float) -> Risk:
    """The risk that a statement leaves, with ``delta`` the chance that is called rare."""
    rare = _exceeded(statement, delta)
    chance = delta if rare < statement.epsilon(0.0) else 0.0
    return Risk((1 + statement.delta(0.0)) / 2, _exceeded(statement, OFTEN), rare, chance)


def _exceeded(statement: Bounded, chance: float) -> float:
    """A ``t`` with ``P(L > t) ≤ chance``: the least of ``ε(c·chance) − log(1 − c)``, or the pure ``ε``."""
    found = statement.epsilon(0.0)
    if chance > 0:
        shares = (statement.epsilon(share * chance) - math.log1p(-share) for share in _SHARES)
        found = min(found, *shares)
    return found * (1 + 1e-12)


def whom(adjacency: Adjacency, unit: Unit | None = None) -> str:
    """Who is protected: a row, or where ``unit`` says so all rows of a person."""
    words = _WHOM[adjacency]
    if unit is None:
        return words
    many = f"all rows of one person (up to {unit.rows} with the same {unit.name!r})"
    words = words.replace("one person's row is", f"{many} are").replace("any other", "any other person's")
    return words.replace("a row", "all rows of a person").replace("number of rows", "number of persons")


def in_words(found: Risk, adjacency: Adjacency, unit: Unit | None = None) -> str:
    """The risk in a few sentences that need no mathematics."""
    secret, known = _SECRET[adjacency], "row"
    if unit is not None:
        secret, known = secret.replace("row is the true one", "rows are the true ones"), "person's rows"
    after = "whatever is released"
    if found.chance > 0:
        after = f"in all but one of {math.floor(1 / found.chance * (1 + 1e-9)):,} releases"
    return (
        f"Suppose somebody knows every {known} but yours, and finds it as likely as not (50 %) "
        f"{secret}. From everything released here they guess right at most "
        f"{_percent(found.right)} of the time. Their belief in the truth rises to at most "
        f"{_percent(found.belief(0.5, usually=True))} in 19 of 20 releases, and to at most "
        f"{_percent(found.belief(0.5))} {after}. What such data tell about people in general is not "
        "hidden: that is what the analysis is for."
    )


def curve(statement: Bounded, target: tuple[float, float]) -> Plot:
    """δ at every ε, and the target."""
    epsilon, delta = target
    shown = max(delta, 1e-12)
    top = min(1.4 * max(statement.epsilon(shown), epsilon), 250.0)
    epsilons = [top * step / 60 for step in range(61)]
    points = [(at, found) for at in epsilons if (found := statement.delta(at)) >= shown / 1000]
    return Plot(
        title="Privacy curve: δ at every ε",
        x_label="ε",
        y_label="δ",
        drawn=(
            Line(tuple(at for at, _ in points), tuple(found for _, found in points), "certified"),
            Rule("x", epsilon, "target ε"),
            Rule("y", shown, "target δ"),
        ),
        description="An upper bound. The curve passes where the lines of the target cross, or below.",
        y_log=True,
        y_range=(shown / 100, 1.5),
        x_range=(0.0, top),
    )


def lines(statement: Any, delta: float) -> list[str]:
    """A ``Statement`` in readable lines: the first has its numbers at ``delta``, the others the argument."""
    gdp = "" if statement.gdp is None else f", {rounded_up(statement.gdp, 6):.6g}-GDP"
    pure = statement.epsilon(0.0)
    price = f"ε = {rounded_up(pure, 6):.6g} (pure)"
    if not math.isfinite(pure):
        price = f"ε = {rounded_up(statement.epsilon(delta), 6):.6g} at δ = {rounded_up(delta, 6):g}"
    of = "" if statement.unit is None else f" of {statement.unit}"
    found = [f"{price}{gdp} under {statement.adjacency}{of}", f"  by {statement.argument.theorem}"]
    found += [f"  given that {line}" for line in statement.argument.assumptions]
    if statement.argument.constants:
        found.append(f"  with {_short(statement.argument.constants, '=')[1:-1]}")
    return found + [f"  | {line}" for part in statement.parts for line in lines(part, delta)]


def remarks(statement: Any, delta: float) -> tuple[str, ...]:
    """What has to be said of ``delta``."""
    pure = math.isfinite(statement.epsilon(0.0))
    return () if pure else remarks_on_delta(delta, max(row_counts(statement), default=0))


def row_counts(statement: Any) -> tuple[int, ...]:
    """The numbers of rows that the runs of a ``Statement`` were for."""
    known = statement.argument.constants
    own = tuple(known[name] for name in ("num_rows", "n") if isinstance(known.get(name), int))
    return own + tuple(count for part in statement.parts for count in row_counts(part))


def report(statement: Any) -> Report:
    """What it means to one person, in words; the argument folded away."""
    pure = statement.epsilon(0.0)
    shown = 0.0 if math.isfinite(pure) else 1e-6
    price = (
        f"ε = {at_most(pure)}, pure" if shown == 0 else f"ε = {at_most(statement.epsilon(shown))} at δ = 1e-6"
    )
    checked = "Recomputed from its constants" if statement.verify() else "NOT VERIFIED"
    blocks = (
        Verdict("What this release costs", price, "plain"),
        Text(in_words(risk(statement, shown), statement.adjacency, statement.unit)),
        Text(f"{checked}; who is protected: {whom(statement.adjacency, statement.unit)}."),
        details(statement, shown),
    )
    return Report("Privacy statement", blocks)


class Shown(Bounded):
    """What a statement says, in words."""

    @property
    def advantage(self) -> float:
        """Upper bound on the membership advantage, ``δ(0)`` (total variation)."""
        return self.delta(0.0)

    def summary(self, delta: float = 1e-6) -> str:
        """A few readable lines: numbers at ``delta``, theorem, assumptions and constants."""
        return "\n".join([*lines(self, delta), *remarks(self, delta)])

    def show(self, console: Console | None = None) -> None:
        """Print what it means to one person, in words."""
        report(self).show(console)

    def _repr_html_(self) -> str:
        return report(self)._repr_html_()

    def __str__(self) -> str:
        return self.summary()


def details(statement: Any, delta: float) -> Details:
    """Theorem, assumptions and constants, of the parts too, folded away."""
    return Details("Why: theorems, assumptions, constants", (Code(statement.summary(delta)),))


def _short(value: object, sign: str = ": ") -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}{sign}{_short(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (tuple, list)):
        shown = ", ".join(_short(item) for item in value) if len(value) <= 6 else f"{len(value)} values"
        return f"[{shown}]"
    return str(value)


def _percent(share: float) -> str:
    """Rounded up to a tenth of a per cent; never 100 % for what is less."""
    shown = math.ceil(1000 * share - 1e-9) / 10
    return f"{shown:g} %" if shown < 100 else "nearly 100 %"
