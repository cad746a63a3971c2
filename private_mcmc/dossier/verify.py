"""The check of a dossier from its folder alone, on any machine: numbers recomputed, pages made again."""

from __future__ import annotations

import io
import json
import math
import re
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from private_mcmc.accounting import Statement
from private_mcmc.accounting import verify as verify_statement
from private_mcmc.accounting.assumptions import no_more_rows
from private_mcmc.data.answers import arviz_module
from private_mcmc.data.fields import count_of, identifier
from private_mcmc.data.schema import Schema
from private_mcmc.data.source import compile_model, model_source
from private_mcmc.dossier.folder import (
    DRAWS,
    FILES,
    FOREST,
    MODEL,
    PAGE,
    SCHEMA,
    digest,
    forest_of,
    schema_text,
)
from private_mcmc.dossier.page import page
from private_mcmc.dossier.record import (
    RECORD,
    StudyRecord,
    mark_of_claims,
    no_dossier,
    privacy_numbers,
    texts,
    warnings_of,
)
from private_mcmc.errors import DeclarationError, PrivateMCMCError
from private_mcmc.records import Fields
from private_mcmc.report import Report, Table, Verdict, at_most
from private_mcmc.report.blocks import Tone
from private_mcmc.target import Target, Unit, check_adjacency

if TYPE_CHECKING:
    from private_mcmc.release import Ledger

Pixels = npt.NDArray[np.float32]

_SVG = re.compile(r"<svg.*?</svg>", re.DOTALL)
# Names inside a drawing are hashes of what they name.
_NAME = re.compile(r'(?:\bid="|href="#|url\(#)[\w.-]+')
# Where something stands; all else in a drawing, the numbers that are read in it too, is compared exactly.
_PLACE = re.compile(r'\b(?:d|points|x|y|x1|x2|y1|y2|width|height|transform|viewBox)="[^"]*"')
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
# Of coordinates, in points: libraries of other machines place labels a little differently.
_POINTS = 0.5
_PICTURES = ("the page's drawings", "forest.png, drawn again")
# Of a picture's pixels, from 0 to 1: what may differ from all pixels that touch the place.
_SHADE = 0.4


Result = Literal["agrees", "differs", "not checked"]

_CLOSE = 1e-9


class Skipped(Exception):
    """A check that cannot be made here."""


@dataclass(frozen=True)
class Check:
    """One thing that was looked at, and what was found."""

    what: str
    result: Result
    why: str = ""


def recomputed(study: StudyRecord) -> tuple[Check, ...]:
    """What a record claims, recomputed from its constants; not whether it is the record that was written."""
    return (
        checked("the privacy statement", lambda: _statement(study)),
        checked("ε, δ and the risk at the target", lambda: _numbers(study)),
        checked("the stages' prices", lambda: _stages(study)),
        checked("the posterior's certificate", lambda: _certificate(study)),
        checked("formula, schema, model and row bounds", lambda: _question(study)),
    )


def checked(what: str, check: Callable[[], str]) -> Check:
    """What a check found; it never raises."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of numbers that are out of all range
            return Check(what, "agrees", check())
    except Skipped as reason:
        return Check(what, "not checked", str(reason))
    except (PrivateMCMCError, OSError) as error:
        return Check(what, "differs", str(error))
    except Exception as error:  # a record may hold anything, and libraries raise anything for it
        return Check(what, "differs", f"makes no sense here ({type(error).__name__}: {error})")


def need(holds: bool, words: str) -> None:
    """Raise ``DeclarationError`` unless it holds."""
    if not holds:
        raise DeclarationError(words)


def _statement(study: StudyRecord) -> str:
    found = verify_statement(study.statement)
    need(bool(found), found.reason)
    need(study.price.adjacency == study.adjacency, "the statement speaks of another adjacency.")
    need(not study.seeded, "the caller chose the randomness: not private.")
    known = study.randomness.get("source") == "operating system"
    need(known, "the record does not say that the operating system chose the randomness.")
    _is_for(study, study.price, "the statement")
    stated = [] if study.price.unit is None else [study.price.unit]
    need(_units(study) == stated, "the statement protects another unit than the rows declare.")
    price = study.price
    own = price.argument.constants.get("temper")
    weight = 1.0 if study.stages and study.guarantee == "run" else study.temper if own is None else own
    need(close(study.temper, float(weight)), f"the weight of the likelihood is {weight}, not {study.temper}.")
    meets = price.delta(study.epsilon) <= study.delta or price.epsilon(study.delta) <= study.epsilon
    need(meets, f"the statement does not meet ε = {study.epsilon:g} at δ = {study.delta:g}.")
    return found.reason


def _units(study: StudyRecord) -> list[Unit]:
    """Whose rows were put together, as the row declaration of a record says."""
    found = [(name, one["person"]) for name, one in study.rows.items() if "person" in one]
    return [Unit(name, person["at_most"]) for name, person in found]


def _is_for(study: StudyRecord, made: Statement, what: str) -> None:
    """Raise ``DeclarationError`` unless a statement is for the record's number of rows."""
    counts = set(_counts(made))
    need(counts <= {study.n}, f"{what} is for {sorted(counts)} rows, not for {study.n}.")
    # A bounded log-likelihood alone needs no number of rows.
    if study.adjacency == "add_remove" and made.argument.rule != "posterior.bounded":
        capped = no_more_rows(study.n) in _sentences(made)
        need(capped, f"{what} is not for at most {study.n} rows.")


def _sentences(statement: Statement) -> Iterator[str]:
    yield from statement.argument.assumptions
    for part in statement.parts:
        yield from _sentences(part)


def _counts(statement: Statement) -> Iterator[int]:
    """The numbers of rows that its runs were for."""
    known = statement.argument.constants
    yield from (known[name] for name in ("num_rows", "n") if name in known)
    for part in statement.parts:
        yield from _counts(part)


def _numbers(study: StudyRecord) -> str:
    again, found = privacy_numbers(study.price, study.epsilon, study.delta), dict(study.privacy)
    wrong = [name for name in {**again, **found} if not close(found.get(name), again.get(name))]
    said = "; ".join(f"{name} is {again.get(name)}, not {found.get(name)}" for name in wrong)
    need(not wrong, f"recomputed, {said}.")
    remarks = warnings_of(Target(study.epsilon, study.delta, study.price.adjacency), study.n, study.ledger)
    need(set(remarks) <= set(study.warnings), f"what is to be known of this target is {list(remarks)}.")
    return f"ε = {at_most(again['epsilon_at_delta'])} at δ = {at_most(study.delta)}"


def close(found: Any, wanted: Any) -> bool:
    """Equal, up to rounding on another machine."""
    if isinstance(wanted, Mapping):
        return (
            isinstance(found, Mapping)
            and found.keys() == wanted.keys()
            and all(close(found[key], wanted[key]) for key in wanted)
        )
    if isinstance(wanted, list | tuple) and isinstance(found, list | tuple):
        return len(found) == len(wanted) and all(map(close, found, wanted))
    if isinstance(wanted, float):
        return type(found) in (int, float) and math.isclose(found, wanted, rel_tol=_CLOSE, abs_tol=1e-300)
    return type(found) is type(wanted) and found == wanted


def _stages(study: StudyRecord) -> str:
    planned = study.price.argument.rule == "adaptive"
    if not (planned or study.stages):
        raise Skipped("not a plan")
    prices = [part.gdp for part in study.price.parts]
    shown = [stage["gdp"] for stage in study.stages]
    # Without a stage any budget follows from its constants.
    need(bool(planned and prices), "the statement names no stage that could have released anything.")
    need(len(prices) == len(shown) and all(map(close, shown, prices)), f"{shown} are not {prices}.")
    return f"{len(shown)} stages"


def _certificate(study: StudyRecord) -> str:
    if study.guarantee == "run":
        need(study.certificate is None, "a certificate that the guarantee does not speak of.")
        raise Skipped("guarantee 'run': the posterior is not claimed to be private")
    need(study.guarantee == "posterior", f"guarantee {study.guarantee!r} is unknown.")
    need(study.certificate is not None, "guarantee 'posterior' without a certificate.")
    found = verify_statement(study.certificate or {})
    need(bool(found), found.reason)
    made = Statement.from_dict(study.certificate or {})
    need(made.adjacency == study.adjacency, "the certificate speaks of another adjacency.")
    need(made.unit == study.price.unit, "the certificate protects another unit than the statement.")
    _is_for(study, made, "the certificate")
    weight = made.argument.constants.get("temper", study.temper)
    need(close(weight, study.temper), f"the certificate is for temper {weight}, not {study.temper}.")
    need(made.delta(study.epsilon) <= study.delta, "the certificate does not meet the target.")
    if not study.formula:
        return found.reason
    same_library(study)
    proved = _proved_of_formula(study)
    need(any(close(study.certificate, one) for one in proved), "no such certificate is proved of the model.")
    return "what is proved of the model that the formula gives"


def _proved_of_formula(study: StudyRecord) -> list[Fields]:
    """The certificates of a formula's posterior at the record's weight, proved anew: no row is needed.

    Of the model that formula and schema give, and never of a program that the record holds.
    """
    from private_mcmc.model import read
    from private_mcmc.preflight.certificates import certificates, constants

    made, schema = study.design, Schema.from_dict(texts(study.schema))
    model, rows = compile_model(model_source(made)), schema.rows(made.formula.fields)
    target = Target(study.epsilon, study.delta, check_adjacency(study.adjacency))
    reading = read(model, rows, n=study.n, model_args=study.arguments)
    known = constants(reading, None, None)
    found = certificates(reading, known, n=study.n, temper=study.temper, target=target)
    return [json.loads(json.dumps(one.to_dict())) for one in found]


def _question(study: StudyRecord) -> str:
    if not study.formula:
        raise Skipped("a model of the user's own: the fingerprint covers it")
    same_library(study)
    schema, made = Schema.from_dict(texts(study.schema)), study.design
    need(model_source(made) == study.model, "the model is not the one that formula and schema give.")
    own = any(effect.term.own for effect in made.effects)
    given = {count_of(identifier(schema.person)): study.n} if own else {}
    need(study.arguments == given, f"public arguments {study.arguments} are not the formula's, {given}.")
    rows = json.loads(json.dumps(schema.rows(made.formula.fields).to_dict()))
    need(rows == study.rows, "the row bounds are not those of the schema.")
    need(close(study.norm, made.norm), f"norm {study.norm} is not {made.norm}.")
    return "the model is the one that the formula gives"


def same_library(study: StudyRecord) -> None:
    """Raise ``Skipped`` where another version made the record."""
    here = version("private-mcmc")
    if study.library != here:
        raise Skipped(f"made with version {study.library}, and this is {here}")


@dataclass(frozen=True)
class DossierCheck:
    """What was recomputed of a dossier; truthy if nothing differs."""

    folder: str
    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing differs; pictures that another matplotlib drew are not compared."""
        return all(check.result != "differs" for check in self.checks)

    def __bool__(self) -> bool:
        return self.ok

    def to_dict(self) -> dict[str, object]:
        """Plain JSON types."""
        return {"ok": self.ok, "dossier": self.folder, "checks": [vars(one) for one in self.checks]}

    def report(self) -> Report:
        """The checks as a table, the answer first."""
        unseen = [one for one in self.checks if one.what in _PICTURES and one.result == "not checked"]
        wrong = [one for one in self.checks if one.result == "differs"] or unseen
        tone: Tone = "bad" if not self.ok else "unsure" if unseen else "good"
        word = "Not verified" if not self.ok else "Verified, but for its pictures" if unseen else "Verified"
        line = "Every privacy number follows from the record."
        line = line if self.ok else "This dossier is not shown to be what ran."
        said = tuple(f"{one.what}: {one.why}" for one in wrong)
        rows = tuple((one.what, one.result, one.why) for one in self.checks)
        table = Table(("what", "result", "why"), rows)
        return Report(f"Check of {self.folder}", (Verdict(word, line, tone, said), table))


def verify_dossier(folder: str | Path, ledger: Ledger | None = None) -> DossierCheck:
    """Recompute every privacy number of a dossier, and compare all of its files with its record.

    What a run computed and nothing can recompute without the table (draws, predicted errors) is covered by
    the fingerprint, which is on the signed page.

    Args:
        folder: the dossier.
        ledger: also compare with the charge in it.

    ``DeclarationError`` if there is no record to check.
    """
    place = Path(folder)
    place = place.parent if place.name == RECORD else place
    try:
        text = (place / RECORD).read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        raise DeclarationError(no_dossier(folder)) from None
    except (OSError, UnicodeDecodeError) as error:
        raise DeclarationError(f"{place / RECORD}: cannot be read ({type(error).__name__}).") from None
    try:
        raw, study = json.loads(text, object_pairs_hook=_once), StudyRecord.load(place)
        if not isinstance(raw, dict):
            raise DeclarationError(f"{RECORD}: no record.")
    except (PrivateMCMCError, ValueError, RecursionError) as error:
        return DossierCheck(str(folder), (Check("the record", "differs", str(error)),))
    made = cache(lambda: page(study).to_html())
    whole = (
        checked("the record's fingerprint", lambda: _fingerprint(study, raw)),
        checked("hashes of the files", lambda: _files(place, raw, study)),
    )
    copies = (
        checked("model.py and schema.yaml", lambda: _copies(place, study)),
        checked("draws.nc against the record", lambda: _draws(place, study)),
        checked("the page, made again", lambda: _page(place, study, made)),
        checked(_PICTURES[0], lambda: _drawings(place, study, made)),
        checked(_PICTURES[1], lambda: _forest(place, study)),
        checked("the charge in the ledger", lambda: _charge(study, ledger)),
    )
    return DossierCheck(str(folder), (*whole, *recomputed(study), *copies))


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """What JSON leaves to its readers: which of two values of one name holds."""
    found = dict(pairs)
    need(len(found) == len(pairs), "a name is given twice: readers would see different values.")
    return found


def _fingerprint(study: StudyRecord, raw: Fields) -> str:
    need(raw.get("fingerprint") == study.fingerprint, "the record was changed after it was written.")
    return f"{study.fingerprint[:16]}…: compare it with the one on the signed page"


def _files(place: Path, raw: Fields, study: StudyRecord) -> str:
    listed = raw.get("files")
    if not isinstance(listed, Mapping):
        raise DeclarationError(f"the dossier is not complete: `private-mcmc report {place}` writes the rest.")
    wanted = {PAGE} | ({DRAWS} if study.draws else set()) | ({MODEL} if study.model else set())
    wanted |= {SCHEMA} if study.schema else set()
    wanted |= {name for name in FILES if (place / name).exists()}
    need(wanted <= set(listed), f"without a hash: {sorted(wanted - set(listed))}.")
    for name, found in listed.items():
        need(Path(name).name == name, f"{name!r} is no file of the folder.")
        need(digest((place / name).read_bytes()) == found, f"{name} was changed.")
    return f"{len(listed)} files"


def _copies(place: Path, study: StudyRecord) -> str:
    if study.model:
        need((place / MODEL).read_bytes() == study.model.encode(), f"{MODEL} is not the model of the record.")
    if study.schema:
        same = (place / SCHEMA).read_bytes() == schema_text(study).encode()
        need(same, f"{SCHEMA} is not the schema of the record.")
    return "as in the record"


def _draws(place: Path, study: StudyRecord) -> str:
    if not study.draws:
        raise Skipped("expectations were released")
    with tempfile.TemporaryDirectory(prefix="private-mcmc-") as scratch:
        # A copy, which the library may keep open.
        copy = Path(scratch) / DRAWS
        copy.write_bytes((place / DRAWS).read_bytes())
        found = arviz_module().from_netcdf(str(copy), engine="h5netcdf").load()
    wanted = study.to_arviz()
    need(set(found.groups()) == set(wanted.groups()), "other groups than released draws.")
    need(set(found.posterior.variables) == set(wanted.posterior.variables), "other variables.")
    for name, values in wanted.posterior.data_vars.items():
        same = found.posterior[name].shape == values.shape and np.allclose(
            found.posterior[name].values, values.values, rtol=1e-9, atol=0.0
        )
        need(same, f"{name!r} is not what was released.")
        for dim in values.dims:
            need(list(found.posterior[dim].values) == list(values[dim].values), f"{dim!r}: other names.")
    for name in ("privacy", "privacy_statement", "fingerprint"):
        need(found.posterior.attrs.get(name) == wanted.posterior.attrs[name], f"attribute {name!r}.")
    return f"{len(wanted.posterior.data_vars)} variables"


def _page(place: Path, study: StudyRecord, made: Callable[[], str]) -> str:
    here = version("private-mcmc")
    need(
        study.library == here, f"by its record version {study.library} made it, and this is {here}: use that."
    )
    found = (place / PAGE).read_text(encoding="utf-8")
    need(_SVG.sub("", found) == _SVG.sub("", made()), "its words or numbers are not those of the record.")
    return "words and numbers"


def _drawings(place: Path, study: StudyRecord, made: Callable[[], str]) -> str:
    same_library(study)
    there = _SVG.findall((place / PAGE).read_text(encoding="utf-8"))
    here = _SVG.findall(made())
    same = len(there) == len(here) and all(map(_alike, there, here))
    _as_drawn(study, same, "a drawing is not that of the record.")
    return f"{len(here)} drawings"


def _as_drawn(study: StudyRecord, same: bool, words: str) -> None:
    """Of pictures that are not the same: another version of what draws them may be why."""
    here, there = version("matplotlib"), study.versions.get("matplotlib")
    if not same and there != here:
        raise Skipped(f"not compared: by its record matplotlib {there} drew it, and this is {here}")
    need(same, words)


def _alike(one: str, other: str) -> bool:
    """The same drawing, up to shifts that no eye sees."""
    one, other = _NAME.sub("", one), _NAME.sub("", other)
    if _PLACE.sub("", one) != _PLACE.sub("", other):
        return False
    here, there = (" ".join(_PLACE.findall(text)) for text in (one, other))
    if _NUMBER.sub("", here) != _NUMBER.sub("", there):
        return False
    pairs = zip(_NUMBER.findall(here), _NUMBER.findall(there), strict=True)
    return all(abs(float(first) - float(second)) <= _POINTS for first, second in pairs)


def _forest(place: Path, study: StudyRecord) -> str:
    same_library(study)
    wanted = forest_of(study)
    if wanted is None:
        need(not (place / FOREST).exists(), "nothing in the record is drawn there.")
        return "nothing to draw"
    found = (place / FOREST).read_bytes()
    _as_drawn(study, found == wanted or _same_picture(found, wanted), "it is not that of the record.")
    return "the same picture"


def _same_picture(one: bytes, other: bytes) -> bool:
    """Whether each pixel of each picture is like one of the other's that touches its place."""
    from matplotlib.image import imread

    first, second = (np.asarray(imread(io.BytesIO(content)), np.float32)[..., :3] for content in (one, other))
    return first.shape == second.shape and all(
        float(np.max(_distance(here, there))) <= _SHADE for here, there in ((first, second), (second, first))
    )


def _distance(here: Pixels, there: Pixels) -> Pixels:
    """Of each pixel from the most alike of the nine around its place in the other picture."""
    around = np.pad(there, ((1, 1), (1, 1), (0, 0)), mode="edge")
    height, width = here.shape[:2]
    shifts = (around[i : i + height, j : j + width] for i in range(3) for j in range(3))
    apart: Pixels = np.min([np.abs(here - shifted).max(axis=-1) for shifted in shifts], axis=0)
    return apart


def _charge(study: StudyRecord, ledger: Ledger | None) -> str:
    if study.ledger is None and ledger is not None:
        raise DeclarationError("by its record this run was charged to no ledger.")
    if study.ledger is None:
        raise Skipped("nothing kept count of this run")
    if ledger is None:
        raise Skipped(f"give --ledger: {study.ledger['file']}")
    from private_mcmc.release.ledger.export import standing

    state, books = ledger.state(), dict(study.ledger)
    charge = state.reservations.get(books["charge"])
    if charge is None:
        raise DeclarationError("the ledger has no such charge.")
    need(charge.outcome == "released", f"the charge was {charge.outcome}, not released.")
    same = _paid_for(charge.statement) == _paid_for(study.statement)
    need(same, "the charge was made for another statement than that of the release.")
    _, marked, said = charge.model.rpartition(", claims ")
    claims = mark_of_claims(study.rows, study.temper, study.certificate)
    need(
        not marked or said == claims, "rows, weight or certificate are not those of the run that was charged."
    )
    known = charge.dossiers
    words = "of this charge the ledger knows " + ("another dossier." if known else "no dossier.")
    need(known is None or study.fingerprint in known, words)
    cost = state.dataset(charge.dataset).filter.cost(study.price)
    need(cost <= charge.cost * (1 + Fraction(1, 10**9)), "less was charged than the release costs.")
    again = standing(state, charge.identity) | {"file": books["file"]}
    # Earlier versions named no claims. That none were taken out is told by the fingerprint in the ledger.
    again = {name: one for name, one in again.items() if name in books or name not in ("whole", "claimed")}
    need(close(books, again), "budget, prices or what is left are not those of the ledger.")
    if known is None and not marked and study.certificate is not None:
        raise Skipped("an earlier version made the charge, which does not say what it certified")
    return f"charged to {charge.dataset!r} at {charge.time}"


def _paid_for(statement: Fields) -> Fields:
    """A statement without names of runs, and without a plan's stages, which are chosen after the charge."""
    found = {name: value for name, value in statement.items() if name not in ("mechanism", "parts")}
    later = statement["argument"]["rule"] == "adaptive"
    return found if later else found | {"parts": [_paid_for(part) for part in statement["parts"]]}
