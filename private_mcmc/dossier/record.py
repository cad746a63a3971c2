"""The record of a run: everything that a reader, a reviewer or a dossier needs, and nothing private."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import distributions
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np

from private_mcmc.accounting import Statement
from private_mcmc.accounting.risk import in_words, risk, whom
from private_mcmc.accounting.statement import NOT_PRIVATE
from private_mcmc.arguments import remarks_on_delta
from private_mcmc.data.answers import Answers, draws_tree, for_arviz
from private_mcmc.data.design import Design, design
from private_mcmc.data.effects import Array
from private_mcmc.data.families import family
from private_mcmc.data.formula import read_formula
from private_mcmc.data.schema import Schema
from private_mcmc.dossier.shape import check_types, check_values, read_raw
from private_mcmc.errors import DeclarationError, LedgerError, NotYetSupported
from private_mcmc.records import Fields, PublicArguments, Record
from private_mcmc.report import Report, at_most
from private_mcmc.system import warn_of_what_was_paid
from private_mcmc.target import Target, check_adjacency

if TYPE_CHECKING:
    import xarray

    from private_mcmc.data.answers import Exported
    from private_mcmc.release import Ledger
    from private_mcmc.release.ledger_state import LedgerState

_VERSION = 1
_SEAL = ("fingerprint", "files")


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class ReleaseRecord(ABC):
    """What is kept of every release. All values in it are public or released.

    Attributes:
        version: of this record's form.
        library: version of the library that made it.
        created: when, in UTC.
        table: the table's name, as it was given.
        schema: the Table Schema descriptor; empty where rows were declared without one.
        rows: the row domains that were enforced, by column.
        epsilon: of the target.
        delta: of the target.
        adjacency: of the target.
        n: number of rows, or its public bound.
        statement: what the release cost, with its argument.
        ledger: what was spent before and is left; ``None`` where nothing kept count.
        warnings: what was said before, and what is to be known of what came out.
        versions: of the libraries that ran.
        randomness: where the keys came from.
    """

    version: int = _VERSION
    library: str
    created: str
    table: str
    schema: Fields
    rows: Fields
    epsilon: float
    delta: float
    adjacency: str
    n: int
    statement: Fields
    ledger: Fields | None
    warnings: tuple[str, ...]
    versions: Mapping[str, str]
    randomness: Mapping[str, str]

    def __repr__(self) -> str:
        price = f"ε = {at_most(self.epsilon, 6)} at δ = {at_most(self.delta, 6)}"
        return f"<{type(self).__name__} of {self.table}: {self.subject}; {price}>"

    @property
    @abstractmethod
    def subject(self) -> str:
        """What was asked, in a few words."""

    @property
    @abstractmethod
    def claims(self) -> str:
        """A mark of what the record says besides its statement, which the charge in a ledger has too."""

    @abstractmethod
    def report(self, prob: float = 0.9) -> Report:
        """The dossier's page, a function of the record alone; ``prob`` is of the intervals."""

    def _repr_html_(self) -> str:
        return self.report()._repr_html_()

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read ``study.json``, or the folder that it is in.

        Raises:
            DeclarationError: for what is no record, or whose fields are not of their types.
        """
        return checked_record(cls, read_raw(path), path)

    def to_dict(self) -> Record:
        """Plain data."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def to_json(self, files: Mapping[str, str] | None = None) -> str:
        """The text of ``study.json``: with its own hash and, where the others are written, theirs."""
        seal: Record = {"fingerprint": self.fingerprint}
        if files is not None:
            seal["files"] = dict(files)
        return json.dumps(self.to_dict() | seal, ensure_ascii=False)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the whole record, to be signed: whatever is changed in it changes this."""
        text = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    @cached_property
    def price(self) -> Statement:
        """The statement of the release."""
        return Statement.from_dict(self.statement)

    @property
    def protects(self) -> str:
        """Who is protected, in words."""
        return whom(check_adjacency(self.adjacency), self.price.unit)

    @property
    def in_words(self) -> str:
        """What the release means to one person."""
        return in_words(risk(self.price, self.delta), check_adjacency(self.adjacency), self.price.unit)

    @property
    def seeded(self) -> bool:
        """Whether the caller chose the randomness: then nothing here is private."""
        lines = self.price.argument.assumptions
        return self.randomness.get("source") == "caller" or NOT_PRIVATE in lines


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class StudyRecord(ReleaseRecord):
    """What is kept of one released run.

    Attributes: those of :class:`ReleaseRecord`, and
        formula: as stated; empty for a model of the user's own.
        family: of the outcome; empty for a model of the user's own.
        priors: as stated.
        model: source of the NumPyro model that ran, where it is known.
        arguments: public arguments of the model.
        guarantee: ``run`` or ``posterior``.
        temper: weight of the likelihood.
        predicted: the error that was predicted before anything was spent; ``None`` without a plan.
        expected: the error that the releases themselves tell of.
        stages: of a plan, each with its name and its price; of one that was stopped also what it released.
        stopped: whether its owner bought no more than these of a plan, or its path diverged.
        certificate: of the posterior, under ``guarantee="posterior"``.
        chains: number of chains, of which ``draws`` has one after the other.
        draws: of the model's sites; empty where expectations were released.
        expectations: released noised expectations; empty where states were released.
    """

    formula: str
    family: str
    priors: tuple[str, ...]
    model: str
    arguments: PublicArguments
    guarantee: str
    temper: float
    predicted: Fields | None
    expected: Fields | None
    stages: tuple[Fields, ...]
    stopped: bool
    certificate: Fields | None
    chains: int
    draws: Fields
    expectations: Fields

    @property
    def subject(self) -> str:
        """The formula."""
        return self.formula or "a model of the user's own"

    @property
    def claims(self) -> str:
        """A mark of rows, weight and certificate."""
        return mark_of_claims(self.rows, self.temper, self.certificate)

    @property
    def passes(self) -> float:
        """How often all rows were gone through, by the public schedule: what a run costs a cluster."""
        return passes(self.price)

    @cached_property
    def design(self) -> Design:
        """The formula with its public scaling."""
        if not self.formula:
            raise NotYetSupported("a model of your own: its draws are in its own units, see to_arviz().")
        schema = Schema.from_dict(texts(self.schema))
        return design(read_formula(self.formula, schema), schema, family(self.family), self.priors)

    def answers(self, prob: float = 0.9) -> Answers:
        """Coefficients, ratios, predictions and plots in the user's units."""
        if not 0 < prob < 1:
            raise DeclarationError(f"prob={prob}: must be between 0 and 1.")
        if self.stopped:
            raise NotYetSupported("a plan was stopped early, or diverged: there are no draws.")
        try:
            found = Answers(self.design, self.arrays, prob)
            found.summary()
        except (KeyError, IndexError, ValueError, TypeError):
            raise DeclarationError("formula, schema and draws of the record do not fit.") from None
        return found

    @property
    def arrays(self) -> dict[str, Array]:
        """The released draws of every site."""
        return {name: np.asarray(values, dtype=np.float64) for name, values in self.draws.items()}

    def to_arviz(self) -> Exported:
        """The released draws: a formula's coefficients in the user's units, or the sites of a model.

        A ``DataTree`` where ArviZ 1 is installed, ``InferenceData`` before; a slash in a name is U+2215.
        """
        return for_arviz(self.draws_tree())

    def draws_tree(self) -> xarray.DataTree:
        """As :meth:`to_arviz`, whichever ArviZ is installed, or none."""
        if not self.draws:
            what = "a plan was stopped early, or diverged" if self.stopped else "expectations were released"
            raise NotYetSupported(f"{what}: there are no draws.")
        attributes = {
            "privacy": self.price.summary(self.delta),
            "privacy_statement": json.dumps(self.statement),
            "fingerprint": self.fingerprint,
        }
        if self.formula:
            return self.answers().draws_tree(self.chains, attributes)
        draws = {name: each.reshape(self.chains, -1, *each.shape[1:]) for name, each in self.arrays.items()}
        return draws_tree(draws, attributes)


Kind = TypeVar("Kind", bound=ReleaseRecord)


def checked_record(kind: type[Kind], raw: Record, place: object) -> Kind:
    """The record of what ``read_raw`` gives; ``place`` is for the words of errors.

    Raises:
        DeclarationError: unless every field is there and of its type.
    """
    record = {name: value for name, value in raw.items() if name not in _SEAL}
    try:
        if record.get("version") != _VERSION:
            raise DeclarationError(f"is not of the form that this library reads, version {_VERSION}.")
        check_types(kind, record)
        check_values(record)
        lists = ("priors", "warnings", "stages", "released")
        made = kind(**record | {name: tuple(record[name]) for name in lists if name in record})
        try:
            passes(made.price)
        except (TypeError, LookupError, ArithmeticError):
            raise DeclarationError("statement: its constants are not those of a run.") from None
    except DeclarationError as error:
        raise DeclarationError(f"{place}: is not the record of a study: {error}") from None
    return made


def environment_hash() -> str:
    """SHA-256 of the sorted lines ``name==version`` of everything installed, as ``pip freeze`` has names."""
    lines = {f"{one.metadata['Name']}=={one.version}" for one in distributions()}
    return "sha256:" + hashlib.sha256("\n".join(sorted(lines, key=str.lower)).encode()).hexdigest()


def mark_of_claims(rows: Fields, temper: float, certificate: Fields | None) -> str:
    """Of what a record says of rows and posterior and a statement does not, for the charge in a ledger."""
    text = json.dumps([rows, temper, certificate], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def texts(value: Any) -> Any:
    """Plain data with every scalar as the text that YAML would have."""
    if isinstance(value, Mapping):
        return {str(key): texts(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [texts(item) for item in value]
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


# Fingerprints of records that this process saw their ledgers know. The release of another one stays: from it
# alone a ledger can be told, and another process cannot remember whether it was.
KNOWN: set[str] = set()


def enter(ledger: Ledger | None, record: ReleaseRecord) -> None:
    """Tell the ledger, if it can be written, the fingerprint of a record of one of its charges."""
    if record.ledger is None:
        return
    try:
        if ledger is not None:
            ledger.know(str(record.ledger["charge"]), record.fingerprint)
            KNOWN.add(record.fingerprint)
    except (LedgerError, KeyboardInterrupt) as error:
        why = str(error) or "interrupted"
        told = "until `private-mcmc report --ledger` tells it from its release.json"
        warn_of_what_was_paid(f"against the ledger this record will not be verified, {told}: {why}")


def standing_in(ledger: Ledger, charge: str) -> Record:
    """What was spent before a charge and is left after it, in a ledger's file.

    The name of the file without its folder: a path may tell who keeps it.
    """
    return {"file": ledger.path.name, **standing(ledger.state(), charge)}


def standing(state: LedgerState, identity: str) -> Record:
    """What was spent when a charge was made, and is left after it, as plain JSON types."""
    charge = state.reservations[identity]
    kept, after = state.dataset(charge.dataset).filter, charge.before + charge.spent
    return {
        "charge": identity,
        "dataset": charge.dataset,
        "purpose": charge.purpose,
        "epsilon": kept.epsilon,
        "delta": kept.delta,
        "budget": kept.describe(kept.limit),
        "before": kept.describe(charge.before),
        "cost": kept.describe(charge.spent),
        "after": kept.describe(after),
        "left": kept.describe(kept.limit - after, left=True),
    }


_LARGE_EPSILON = 10.0


def warnings_of(target: Target, n: int, ledger: object | None) -> tuple[str, ...]:
    """Remarks on a target for ``n`` rows, and on a run that no ledger counts."""
    found = [*remarks_on_delta(target.delta, n)]
    if target.epsilon > _LARGE_EPSILON:
        found.append(
            f"ε = {at_most(target.epsilon, 6)} promises next to nothing: what is published may be "
            f"e^{at_most(target.epsilon, 6)} times as likely with a person's row as with another in "
            "its place. ε = 1 is strong, 3 usual."
        )
    if ledger is None:
        found.append(
            "Nothing keeps count of this run: what several runs tell about the same people adds up. "
            "Keep a ledger (ledger=…, or --ledger and --dataset)."
        )
    return tuple(found)


def passes(statement: Statement) -> float:
    """Over the rows: one for each step of a chain, its batch's share where it has one; one for each query.

    Chains of one run share every pass. Of batches that are drawn it is what is expected.
    """
    if statement.parts:
        return sum(map(passes, statement.parts))
    known = statement.argument.constants
    return float(known.get("num_steps", 1) * known.get("rate", 1.0))


def not_protected(study: ReleaseRecord) -> dict[str, str]:
    """Everything that a release tells and no statement covers, by what it is."""
    what = "rows" if study.price.unit is None else "persons"
    number = f"n = {study.n:,}, the number of {what}"
    if study.adjacency != "replace_one":
        number = f"{study.n:,}, a public bound of the number of {what}; the number itself is protected"
    declared = f"columns {', '.join(study.rows)} and what a row may hold in each"
    if study.schema:
        schema = Schema.from_dict(texts(study.schema))
        fields = [field for field in schema.fields if field.is_used]
        levels = sum(len(field.all_levels) for field in fields if field.is_category)
        declared = (
            f"names, types, ranges, codes of missing values and {levels} levels of {len(fields)} fields, "
            "as declared: whether any row has a level is protected"
        )
    asked = f"{study.subject}; ε, δ, cells and bins"
    if isinstance(study, StudyRecord):
        asked = f"formula {study.formula!r}, family and priors" if study.formula else "the model's program"
        asked += "; ε, δ, guarantee and the plan"
    return {
        "number": number,
        "declarations": declared,
        "question": asked,
        "refusals": "whether the table was refused: a cell, a shape or a file without a declared fate",
        "existence": f"that a run was made of {study.table or 'rows in memory'}, when, and what it cost",
        "time": "how long the run took, and what its machine's memory, caches and power show",
        "facts about people in general": "what such data tell of anybody, in the data or not",
    }
