"""The check of a dossier from its folder alone, on any machine: numbers recomputed, pages made again."""

from __future__ import annotations

import json
import math
import re
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from private_mcmc.accounting import Statement
from private_mcmc.accounting import verify as verify_statement
from private_mcmc.accounting.assumptions import no_more_rows
from private_mcmc.data.schema import Schema
from private_mcmc.data.source import model_source
from private_mcmc.dossier.folder import DRAWS, MODEL, PAGE, SCHEMA, digest, schema_text
from private_mcmc.dossier.page import page
from private_mcmc.dossier.record import RECORD, StudyRecord, privacy_numbers, texts
from private_mcmc.dossier.remarks import warnings_of
from private_mcmc.errors import DeclarationError, PrivateMCMCError
from private_mcmc.report import Report, Table, Verdict
from private_mcmc.report.blocks import Tone
from private_mcmc.target import Target

if TYPE_CHECKING:
    from private_mcmc.release import Ledger

Result = Literal["agrees", "differs", "not checked"]

_CLOSE = 1e-9
_SVG = re.compile(r"<svg.*?</svg>", re.DOTALL)
# Names inside a drawing are hashes of what they name.
_NAME = re.compile(r'(?:\bid="|#)[\w.-]+')
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
# Of a drawing's coordinates, in points: libraries of other machines place labels a little differently.
_POINTS = 0.5


class _Skipped(Exception):
    """A check that cannot be made here."""


@dataclass(frozen=True)
class Check:
    """One thing that was looked at, and what was found."""

    what: str
    result: Result
    why: str = ""


@dataclass(frozen=True)
class DossierCheck:
    """What was recomputed of a dossier; truthy if nothing differs."""

    folder: str
    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing differs and the privacy statement was recomputed."""
        return all(check.result != "differs" for check in self.checks)

    def __bool__(self) -> bool:
        return self.ok

    def to_dict(self) -> dict[str, object]:
        """Plain JSON types."""
        checks = [{"what": one.what, "result": one.result, "why": one.why} for one in self.checks]
        return {"ok": self.ok, "dossier": self.folder, "checks": checks}

    def report(self) -> Report:
        """The checks as a table, the answer first."""
        tone: Tone = "good" if self.ok else "bad"
        word = "Verified" if self.ok else "Not verified"
        wrong = tuple(f"{one.what}: {one.why}" for one in self.checks if one.result == "differs")
        line = "Every privacy number follows from the record." if self.ok else "This dossier is not what ran."
        rows = tuple((one.what, one.result, one.why) for one in self.checks)
        table = Table(("what", "result", "why"), rows)
        return Report(f"Check of {self.folder}", (Verdict(word, line, tone, wrong), table))


def verify_dossier(folder: str | Path, ledger: Ledger | None = None) -> DossierCheck:
    """Recompute every privacy number of a dossier, and compare all of its files with its record.

    What a run computed and nothing can recompute without the table (draws, predicted errors) is covered by
    the fingerprint, which is on the signed page.

    Args:
        folder: the dossier.
        ledger: also compare with the charge in it.

    Raises:
        DeclarationError: if there is no record to check.
    """
    place = Path(folder)
    place = place.parent if place.name == RECORD else place
    try:
        text = (place / RECORD).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DeclarationError(f"{place / RECORD}: cannot be read ({type(error).__name__}).") from None
    try:
        raw, study = json.loads(text), StudyRecord.load(place)
        if not isinstance(raw, dict):
            raise DeclarationError(f"{RECORD}: no record.")
    except (PrivateMCMCError, ValueError, RecursionError) as error:
        return DossierCheck(str(folder), (Check("the record", "differs", str(error)),))
    whole = (
        _checked("the record's fingerprint", lambda: _fingerprint(study, raw)),
        _checked("hashes of the files", lambda: _files(place, raw, study)),
    )
    copies = (
        _checked("model.py and schema.yaml", lambda: _copies(place, study)),
        _checked("draws.nc against the record", lambda: _draws(place, study)),
        _checked("the page, made again", lambda: _page(place, study)),
        _checked("the charge in the ledger", lambda: _charge(study, ledger)),
    )
    return DossierCheck(str(folder), (*whole, *recomputed(study), *copies))


def recomputed(study: StudyRecord) -> tuple[Check, ...]:
    """What a record claims, recomputed from its constants; not whether it is the record that was written."""
    return (
        _checked("the privacy statement", lambda: _statement(study)),
        _checked("ε, δ and the risk at the target", lambda: _numbers(study)),
        _checked("the stages' prices", lambda: _stages(study)),
        _checked("the posterior's certificate", lambda: _certificate(study)),
        _checked("formula, schema, model and row bounds", lambda: _question(study)),
    )


def _checked(what: str, check: Callable[[], str]) -> Check:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of numbers that are out of all range
            return Check(what, "agrees", check())
    except _Skipped as reason:
        return Check(what, "not checked", str(reason))
    except (PrivateMCMCError, OSError) as error:
        return Check(what, "differs", str(error))
    except Exception as error:  # a record may hold anything, and libraries raise anything for it
        return Check(what, "differs", f"makes no sense here ({type(error).__name__}: {error})")


def _need(holds: bool, words: str) -> None:
    if not holds:
        raise DeclarationError(words)


def _fingerprint(study: StudyRecord, raw: Mapping[str, Any]) -> str:
    _need(raw.get("fingerprint") == study.fingerprint, "the record was changed after it was written.")
    return f"{study.fingerprint[:16]}…: compare it with the one on the signed page"


def _files(place: Path, raw: Mapping[str, Any], study: StudyRecord) -> str:
    listed = raw.get("files")
    if not isinstance(listed, Mapping):
        raise DeclarationError(f"the dossier is not complete: `private-mcmc report {place}` writes the rest.")
    wanted = {PAGE} | ({DRAWS} if study.draws else set()) | ({MODEL} if study.model else set())
    wanted |= {SCHEMA} if study.schema else set()
    _need(wanted <= set(listed), f"without a hash: {sorted(wanted - set(listed))}.")
    for name, found in listed.items():
        _need(Path(name).name == name, f"{name!r} is no file of the folder.")
        _need(digest((place / name).read_bytes()) == found, f"{name} was changed.")
    return f"{len(listed)} files"


def _statement(study: StudyRecord) -> str:
    found = verify_statement(study.statement)
    _need(bool(found), found.reason)
    _need(study.price.adjacency == study.adjacency, "the statement speaks of another adjacency.")
    _need(not study.seeded, "the caller chose the randomness: not private.")
    counts = set(_counts(study.price))
    _need(counts <= {study.n}, f"the statement is for {sorted(counts)} rows, not for {study.n}.")
    if study.adjacency == "add_remove":
        capped = no_more_rows(study.n) in _sentences(study.price)
        _need(capped, f"the statement is not for at most {study.n} rows.")
    price = study.price
    meets = price.delta(study.epsilon) <= study.delta or price.epsilon(study.delta) <= study.epsilon
    _need(meets, f"the statement does not meet ε = {study.epsilon:g} at δ = {study.delta:g}.")
    return found.reason


def _sentences(statement: Statement) -> Iterator[str]:
    yield from statement.argument.assumptions
    for part in statement.parts:
        yield from _sentences(part)


def _counts(statement: Statement) -> Iterator[int]:
    """The numbers of rows that its runs were for."""
    rows = statement.argument.constants.get("num_rows")
    if rows is not None:
        yield rows
    for part in statement.parts:
        yield from _counts(part)


def _numbers(study: StudyRecord) -> str:
    again, found = privacy_numbers(study.price, study.epsilon, study.delta), dict(study.privacy)
    wrong = [name for name in {**again, **found} if not _close(found.get(name), again.get(name))]
    said = "; ".join(f"{name} is {again.get(name)}, not {found.get(name)}" for name in wrong)
    _need(not wrong, f"recomputed, {said}.")
    remarks = warnings_of(Target(study.epsilon, study.delta, study.price.adjacency), study.n, study.ledger)
    _need(set(remarks) <= set(study.warnings), f"what is to be known of this target is {list(remarks)}.")
    return f"ε = {again['epsilon_at_delta']:.6g} at δ = {study.delta:g}"


def _close(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, Mapping):
        return (
            isinstance(found, Mapping)
            and found.keys() == wanted.keys()
            and all(_close(found[key], wanted[key]) for key in wanted)
        )
    if isinstance(wanted, float):
        return type(found) in (int, float) and math.isclose(found, wanted, rel_tol=_CLOSE, abs_tol=1e-300)
    return type(found) is type(wanted) and found == wanted


def _stages(study: StudyRecord) -> str:
    if not study.stages:
        raise _Skipped("not a plan")
    prices = [part.gdp for part in study.price.parts]
    shown = [stage["gdp"] for stage in study.stages]
    _need(len(prices) == len(shown) and all(map(_close, shown, prices)), f"{shown} are not {prices}.")
    return f"{len(shown)} stages"


def _certificate(study: StudyRecord) -> str:
    if study.guarantee == "run":
        _need(study.certificate is None, "a certificate that the guarantee does not speak of.")
        raise _Skipped("guarantee 'run': the posterior is not claimed to be private")
    _need(study.guarantee == "posterior", f"guarantee {study.guarantee!r} is unknown.")
    _need(study.certificate is not None, "guarantee 'posterior' without a certificate.")
    found = verify_statement(study.certificate or {})
    _need(bool(found), found.reason)
    made = Statement.from_dict(study.certificate or {})
    _need(made.adjacency == study.adjacency, "the certificate speaks of another adjacency.")
    _need(made.delta(study.epsilon) <= study.delta, "the certificate does not meet the target.")
    return found.reason


def _question(study: StudyRecord) -> str:
    if not study.formula:
        raise _Skipped("a model of the user's own: the fingerprint covers it")
    _same_library(study)
    schema, made = Schema.from_dict(texts(study.schema)), study.design
    _need(model_source(made) == study.model, "the model is not the one that formula and schema give.")
    rows = json.loads(json.dumps(schema.rows(made.formula.fields).to_dict()))
    _need(rows == study.rows, "the row bounds are not those of the schema.")
    _need(_close(study.norm, made.norm), f"norm {study.norm} is not {made.norm}.")
    return "the model is the one that the formula gives"


def _same_library(study: StudyRecord) -> None:
    here = version("private-mcmc")
    if study.library != here:
        raise _Skipped(f"made with version {study.library}, this is {here}; hashes and fingerprint cover it")


def _copies(place: Path, study: StudyRecord) -> str:
    if study.model:
        _need(
            (place / MODEL).read_bytes() == study.model.encode(), f"{MODEL} is not the model of the record."
        )
    if study.schema:
        same = (place / SCHEMA).read_bytes() == schema_text(study).encode()
        _need(same, f"{SCHEMA} is not the schema of the record.")
    return "as in the record"


def _draws(place: Path, study: StudyRecord) -> str:
    if not study.draws:
        raise _Skipped("expectations were released")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import arviz
    with tempfile.TemporaryDirectory(prefix="private-mcmc-") as scratch:
        # A copy, which the library may keep open.
        copy = Path(scratch) / DRAWS
        copy.write_bytes((place / DRAWS).read_bytes())
        found = arviz.from_netcdf(str(copy), engine="h5netcdf").load()
    wanted = study.to_arviz()
    _need(set(found.groups()) == set(wanted.groups()), "other groups than released draws.")
    _need(set(found.posterior.data_vars) == set(wanted.posterior.data_vars), "other variables.")
    for name, values in wanted.posterior.data_vars.items():
        same = found.posterior[name].shape == values.shape and np.allclose(
            found.posterior[name].values, values.values, rtol=1e-9, atol=0.0
        )
        _need(same, f"{name!r} is not what was released.")
        for dim in values.dims:
            _need(list(found.posterior[dim].values) == list(values[dim].values), f"{dim!r}: other names.")
    for name in ("privacy", "privacy_statement", "fingerprint"):
        _need(found.posterior.attrs.get(name) == wanted.posterior.attrs[name], f"attribute {name!r}.")
    return f"{len(wanted.posterior.data_vars)} variables"


def _page(place: Path, study: StudyRecord) -> str:
    _same_library(study)
    found, wanted = (place / PAGE).read_text(encoding="utf-8"), page(study).to_html()
    _need(_SVG.sub("", found) == _SVG.sub("", wanted), "its words or numbers are not those of the record.")
    drawings = list(zip(_SVG.findall(found), _SVG.findall(wanted), strict=True))
    if study.versions.get("matplotlib") != version("matplotlib"):
        return "words and numbers; its drawings were made by another version of matplotlib"
    _need(all(_alike(one, other) for one, other in drawings), "a drawing is not that of the record.")
    return "words, numbers and drawings"


def _alike(one: str, other: str) -> bool:
    """The same drawing, up to shifts that no eye sees."""
    one, other = _NAME.sub("", one), _NAME.sub("", other)
    if _NUMBER.sub("", one) != _NUMBER.sub("", other):
        return False
    pairs = zip(_NUMBER.findall(one), _NUMBER.findall(other), strict=True)
    return all(abs(float(first) - float(second)) <= _POINTS for first, second in pairs)


def _charge(study: StudyRecord, ledger: Ledger | None) -> str:
    if study.ledger is None:
        raise _Skipped("nothing kept count of this run")
    if ledger is None:
        raise _Skipped(f"give --ledger: {study.ledger['file']}")
    from private_mcmc.release.ledger.export import standing

    state, books = ledger.state(), dict(study.ledger)
    charge = state.reservations.get(books["charge"])
    if charge is None:
        raise DeclarationError("the ledger has no such charge.")
    _need(charge.outcome == "released", f"the charge was {charge.outcome}, not released.")
    cost = state.dataset(charge.dataset).filter.cost(study.price)
    _need(cost <= charge.cost * (1 + Fraction(1, 10**9)), "less was charged than the release costs.")
    again = standing(state, charge.identity) | {"file": books["file"]}
    _need(_close(books, again), "budget, prices or what is left are not those of the ledger.")
    return f"charged to {charge.dataset!r} at {charge.time}"
