"""The check of a dossier from its folder alone, on any machine: numbers recomputed, pages made again."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from private_mcmc.dossier.claims import Check, Skipped, checked, close, need, recomputed
from private_mcmc.dossier.folder import (
    ANSWERS,
    DRAWS,
    FILES,
    MODEL,
    PAGE,
    SCHEMA,
    digest,
    netcdf,
    page_of,
    schema_text,
)
from private_mcmc.dossier.query import Query
from private_mcmc.dossier.record import RECORD, ReleaseRecord, StudyRecord, checked_record, read_raw
from private_mcmc.dossier.signature import check_signature
from private_mcmc.errors import DeclarationError
from private_mcmc.files import RECORDED, read_whole
from private_mcmc.records import Fields
from private_mcmc.report import Report, Table, Verdict
from private_mcmc.report.blocks import Tone

if TYPE_CHECKING:
    from private_mcmc.release import Ledger

_SVG = re.compile(r"<svg.*?</svg>", re.DOTALL)
_COPIES = "model.py, schema.yaml and answers.csv"
_DRAWINGS = "drawings of the page"
_LEDGER, _SIGNATURE = "the ledger", "a signature"
_ALONE = (
    "Every number follows from the record, and the files are made from it. That shows that the dossier is "
    "consistent, not that it is what ran: whoever edits constants and numbers together makes another "
    "consistent dossier. Compare with the ledger (--ledger), the signature beside the record "
    "(--allowed-signers) or the fingerprint on the signed page (--fingerprint)."
)


@dataclass(frozen=True)
class DossierCheck:
    """What was recomputed of a dossier, and what it was compared with; truthy if nothing differs."""

    folder: str
    checks: tuple[Check, ...]
    compared_with: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing differs; pictures that another matplotlib drew are not compared."""
        return all(check.result != "differs" for check in self.checks)

    def __bool__(self) -> bool:
        return self.ok

    @property
    def answer(self) -> str:
        """The first line: consistent or not, and compared with nothing, the ledger or a signature."""
        word = "consistent" if self.ok else "not consistent"
        return f"{word}; compared with: {' and '.join(self.compared_with) or 'nothing'}"

    def to_dict(self) -> dict[str, object]:
        """Plain JSON types."""
        return {
            "answer": self.answer,
            "ok": self.ok,
            "compared_with": list(self.compared_with),
            "dossier": self.folder,
            "checks": [vars(one) for one in self.checks],
        }

    def report(self) -> Report:
        """The checks as a table, the answer first."""
        unseen = [one for one in self.checks if one.what == _DRAWINGS and one.result == "not checked"]
        wrong = [one for one in self.checks if one.result == "differs"] or unseen
        sure = self.ok and self.compared_with and not unseen
        tone: Tone = "bad" if not self.ok else "good" if sure else "unsure"
        line = "This dossier is not shown to be what ran."
        if self.ok:
            line = f"It is the dossier that {' and '.join(self.compared_with)} knows." if sure else _ALONE
        said = tuple(f"{one.what}: {one.why}" for one in wrong)
        rows = tuple((one.what, one.result, one.why) for one in self.checks)
        table = Table(("what", "result", "why"), rows)
        word = self.answer[0].upper() + self.answer[1:]
        return Report(f"{self.folder}: {self.answer}", (Verdict(word, line, tone, said), table))


def verify_dossier(
    folder: str | Path,
    ledger: Ledger | None = None,
    fingerprint: str | None = None,
    allowed_signers: Path | None = None,
) -> DossierCheck:
    """Recompute every privacy number of a dossier, and compare all of its files with its record.

    Of itself this shows that a dossier is consistent, never that it is what ran: whoever edits constants and
    numbers together makes another consistent dossier. A ledger or a signed fingerprint shows more.

    Args:
        folder: the dossier, which may be anybody's: files are read with a limit, and no further once a hash
            is not that of its file.
        ledger: also compare with the charge in it.
        fingerprint: also compare with the one on the page that was signed.
        allowed_signers: also check the signature beside the record, against this file (ssh-keygen(1)).

    Raises:
        DeclarationError: if there is no record to check.
    """
    place = Path(folder)
    place = place.parent if place.name == RECORD else place
    if not (place / RECORD).is_file():
        raise DeclarationError(f"{folder}: no dossier; name the folder that fit wrote.")
    try:
        raw = read_raw(place)
        kind: type[ReleaseRecord] = Query if "kind" in raw else StudyRecord
        study = checked_record(kind, raw, place / RECORD)
    except DeclarationError as error:
        return DossierCheck(str(folder), (Check("the record", "differs", str(error)),))
    made = cache(lambda: page_of(study).to_html())
    read = cache(lambda name: read_whole(place / name, RECORDED, links=False))
    anchors = {
        "the fingerprint on the signed page": (_SIGNATURE, lambda: _signed(study, fingerprint)),
        "the charge in the ledger": (_LEDGER, lambda: _charge(study, ledger)),
        "the signature of study.json": (
            _SIGNATURE,
            lambda: check_signature(place, read(RECORD), allowed_signers),
        ),
    }
    found = [
        checked("the record's fingerprint", lambda: _fingerprint(study, raw)),
        checked("hashes of the files", lambda: _files(place, raw, study, read)),
        *recomputed(study),
    ]
    copies: Iterable[tuple[str, Callable[[], str]]] = (
        (_COPIES, lambda: _copies(study, read)),
        ("draws.nc against the record", lambda: _draws(study, read)),
        ("the page, made again", lambda: _page(study, read, made)),
        (_DRAWINGS, lambda: _drawings(study, read, made)),
    )
    whole = all(one.result == "agrees" for one in found[:2])
    found += [
        checked(what, check) if whole else Check(what, "not checked", "its hash, or the record's, differs")
        for what, check in copies
    ]
    outside = [checked(what, check) for what, (_, check) in anchors.items()]
    known = [
        name for (name, _), one in zip(anchors.values(), outside, strict=True) if one.result != "not checked"
    ]
    return DossierCheck(str(folder), (*found, *outside), tuple(dict.fromkeys(reversed(known))))


def _fingerprint(study: ReleaseRecord, raw: Fields) -> str:
    need(raw.get("fingerprint") == study.fingerprint, "the record was changed after it was written.")
    return f"{study.fingerprint[:16]}…: compare it with the one on the signed page"


def _signed(study: ReleaseRecord, fingerprint: str | None) -> str:
    if fingerprint is None:
        raise Skipped("give --fingerprint, from the page that was signed")
    need(fingerprint.strip() == study.fingerprint, "another record was signed.")
    return "the record is the one that was signed"


Read = Callable[[str], bytes]


def _files(place: Path, raw: Fields, study: ReleaseRecord, read: Read) -> str:
    listed = raw.get("files")
    if not isinstance(listed, Mapping):
        raise DeclarationError(f"the dossier is not complete: `private-mcmc report {place}` writes the rest.")
    wanted = {PAGE} | ({SCHEMA} if study.schema else set())
    if isinstance(study, StudyRecord):
        wanted |= ({DRAWS} if study.draws else set()) | ({MODEL} if study.model else set())
    else:
        wanted |= {ANSWERS}
    wanted |= {name for name in FILES if (place / name).exists()}
    need(wanted <= set(listed), f"without a hash: {sorted(wanted - set(listed))}.")
    need(set(listed) <= set(FILES), f"{sorted(set(listed) - set(FILES))[:3]}: no files of a dossier.")
    for name, found in listed.items():
        need(digest(read(name)) == found, f"{name} was changed.")
    return f"{len(listed)} files"


def _copies(study: ReleaseRecord, read: Read) -> str:
    if isinstance(study, Query):
        need(read(ANSWERS) == study.to_csv().encode(), f"{ANSWERS} is not what the record answers.")
    if isinstance(study, StudyRecord) and study.model:
        need(read(MODEL) == study.model.encode(), f"{MODEL} is not the model of the record.")
    if study.schema:
        need(read(SCHEMA) == schema_text(study).encode(), f"{SCHEMA} is not the schema of the record.")
    return "as in the record"


def _draws(study: ReleaseRecord, read: Read) -> str:
    """The file against one that is made again, part by part; nothing is read whose shape is another."""
    if not isinstance(study, StudyRecord) or not study.draws:
        raise Skipped("no draws were released")
    import xarray

    def opened(content: bytes) -> Any:
        return xarray.open_datatree(io.BytesIO(content), engine="h5netcdf")

    count = 0
    with opened(read(DRAWS)) as there, opened(netcdf(study)) as here:
        need(there.groups == here.groups, "other groups.")
        for group in here.groups:
            one, other = there[group].to_dataset(inherit=False), here[group].to_dataset(inherit=False)
            same = set(one.variables) == set(other.variables) and _words(one) == _words(other)
            need(same, f"{group}: other names, or other words.")
            for name, wanted in other.variables.items():
                found = one.variables[name]
                # A few bytes that are packed may fill a memory; ours are not.
                plain = found.encoding.get("chunksizes") is None and _words(found) == _words(wanted)
                alike = (found.dims, found.shape, found.dtype) == (wanted.dims, wanted.shape, wanted.dtype)
                need(plain and alike, f"{group}/{name}: of another shape.")
                close = (found.values == wanted.values).all()
                if wanted.dtype.kind == "f":
                    close = np.allclose(found.values, wanted.values, rtol=1e-9, atol=0.0, equal_nan=True)
                need(bool(close), f"{group}/{name} is not what was released.")
                count += 1
    return f"{count} arrays"


def _words(part: Any) -> str:
    return repr(sorted((name, np.asarray(value).tolist()) for name, value in part.attrs.items()))


def _page(study: ReleaseRecord, read: Read, made: Callable[[], str]) -> str:
    same = _SVG.sub("", read(PAGE).decode()) == _SVG.sub("", made())
    here = version("private-mcmc")
    other = (
        "" if study.library == here else f" Version {study.library} made it, by its record; this is {here}."
    )
    need(same, f"its words or numbers are not those of the record.{other}")
    return "words and numbers"


def _drawings(study: ReleaseRecord, read: Read, made: Callable[[], str]) -> str:
    """Another machine places labels a little differently: what is not the same is left to a person's eye."""
    there, here = _SVG.findall(read(PAGE).decode()), _SVG.findall(made())
    if there != here:
        raise Skipped(
            "drawn elsewhere, by its record with matplotlib " + study.versions.get("matplotlib", "")
        )
    return f"{len(here)} drawings"


def _charge(study: ReleaseRecord, ledger: Ledger | None) -> str:
    if study.ledger is None and ledger is not None:
        raise DeclarationError("by its record this run was charged to no ledger.")
    if study.ledger is None:
        raise Skipped("nothing kept count of this run")
    if ledger is None:
        raise Skipped(f"give --ledger: {study.ledger['file']}")

    state, books = ledger.state(), dict(study.ledger)
    charge = state.reservations.get(books["charge"])
    if charge is None:
        raise DeclarationError("the ledger has no such charge.")
    # One that is open is spent too: what it released, or the ledger, could not be written at the time.
    need(charge.staged or charge.outcome != "kept", "the charge is one of a run that failed.")
    if charge.staged:
        paid = [_paid_for(one) for one, _ in charge.stages]
        bought = [_paid_for(one) for one in study.statement["parts"]]
        # A stage may have been charged whose release was lost.
        stopped = isinstance(study, StudyRecord) and study.stopped
        same = bought == paid[: len(bought)] and (stopped or len(bought) == len(paid))
        need(same, "the charge is of other stages.")
    same = _paid_for(charge.statement) == _paid_for(study.statement)
    need(same, "the charge was made for another statement than that of the release.")
    _, marked, said = charge.model.rpartition(", claims ")
    claimed = not marked or said == study.claims
    need(claimed, "rows, weight, certificate or question are not those of the run that was charged.")
    words = "of this charge the ledger knows " + ("another dossier." if charge.dossiers else "no dossier.")
    need(study.fingerprint in charge.dossiers, words)
    cost = state.dataset(charge.dataset).filter.cost(study.price)
    need(cost <= charge.cost * (1 + Fraction(1, 10**9)), "less was charged than the release costs.")
    again = state.standing(charge.identity) | {"file": books["file"]}
    need(close(books, again), "budget, prices or what is left are not those of the ledger.")
    return f"charged to {charge.dataset!r} at {charge.time}"


def _paid_for(statement: Fields) -> Fields:
    """A statement without names of runs, and without a plan's stages, which are chosen after the charge."""
    found = {name: value for name, value in statement.items() if name not in ("mechanism", "parts")}
    planned = statement["argument"]["rule"] == "adaptive"
    return found if planned else found | {"parts": [_paid_for(part) for part in statement["parts"]]}
