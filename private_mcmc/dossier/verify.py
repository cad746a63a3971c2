"""The check of a dossier from its folder alone, on any machine: numbers recomputed, pages made again."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from private_mcmc.accounting.statement import same
from private_mcmc.dossier.claims import Check, Skipped, checked, need, recomputed
from private_mcmc.dossier.folder import FILES, PAGE, Query, Study, contents, digest
from private_mcmc.dossier.record import ReleaseRecord, StudyRecord, checked_record, standing
from private_mcmc.dossier.shape import RECORD, read_raw
from private_mcmc.errors import DeclarationError, LedgerError, OutputError
from private_mcmc.records import Fields
from private_mcmc.report import Report, Table, Verdict
from private_mcmc.report.blocks import Tone
from private_mcmc.system import RECORDED, read_whole

if TYPE_CHECKING:
    from private_mcmc.release import Ledger, Reservation
    from private_mcmc.release.ledger_state import LedgerState

_SVG = re.compile(r"<svg.*?</svg>", re.DOTALL)
_COPIES = "draws, model, schema and answers"
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
            line = f"It is the dossier known to {' and '.join(self.compared_with)}." if sure else _ALONE
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
        raise DeclarationError(f"{folder}: no dossier; name a folder that private-mcmc wrote.")
    try:
        raw = read_raw(place)
        kind: type[ReleaseRecord] = Query if "kind" in raw else Study
        study = checked_record(kind, raw, place / RECORD)
    except DeclarationError as error:
        return DossierCheck(str(folder), (Check("the record", "differs", str(error)),))
    made = cache(lambda: study.report().to_html())
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
    wanted = set(contents(study)) | {name for name in FILES if (place / name).exists()}
    need(wanted <= set(listed), f"without a hash: {sorted(wanted - set(listed))}.")
    need(set(listed) <= set(FILES), f"{sorted(set(listed) - set(FILES))[:3]}: no files of a dossier.")
    for name, found in listed.items():
        need(digest(read(name)) == found, f"{name} was changed.")
    return f"{len(listed)} files"


def _copies(study: ReleaseRecord, read: Read) -> str:
    for name, make in contents(study).items():
        need(name == PAGE or read(name) == make(), f"{name} is not what the record gives.")
    return "as in the record"


def _page(study: ReleaseRecord, read: Read, made: Callable[[], str]) -> str:
    same = _SVG.sub("", read(PAGE).decode()) == _SVG.sub("", made())
    here = version("private-mcmc")
    other = (
        f" Version {study.library} made it, by its record; this is {here}." if study.library != here else ""
    )
    need(same, f"its words or numbers are not those of the record.{other}")
    return "words and numbers"


def _drawings(study: ReleaseRecord, read: Read, made: Callable[[], str]) -> str:
    """Another machine places labels a little differently: what is not the same is left to a person's eye."""
    if _SVG.findall(read(PAGE).decode()) != _SVG.findall(made()):
        drawn_by = study.versions.get("matplotlib", "")
        raise Skipped(f"drawn elsewhere, by its record with matplotlib {drawn_by}")
    return "as drawn here"


def _charge(study: ReleaseRecord, ledger: Ledger | None) -> str:
    if study.ledger is None and ledger is not None:
        raise DeclarationError("by its record this run was charged to no ledger.")
    if study.ledger is None:
        raise Skipped("nothing kept count of this run")
    if ledger is None:
        raise Skipped(f"give --ledger: {study.ledger['file']}")

    state, charge = charge_of(study, ledger)
    words = "of this charge the ledger knows " + ("another dossier." if charge.dossiers else "no dossier.")
    need(study.fingerprint in charge.dossiers, words)
    cost = state.dataset(charge.dataset).filter.cost(study.price)
    need(cost <= charge.cost * (1 + Fraction(1, 10**9)), "less was charged than the release costs.")
    again = standing(state, charge.identity) | {"file": study.ledger["file"]}
    need(same(dict(study.ledger), again), "budget, prices or what is left are not those of the ledger.")
    return f"charged to {charge.dataset!r} at {charge.time}"


def charge_of(study: ReleaseRecord, ledger: Ledger) -> tuple[LedgerState, Reservation]:
    """The charge that a record names, if it was made for its statement, stages and claims.

    Raises:
        LedgerError: where there is none.
        DeclarationError: for that of another release.
    """
    state = ledger.state()
    charge = None if study.ledger is None else state.reservations.get(study.ledger["charge"])
    if charge is None:
        raise LedgerError("the ledger has no such charge.")
    # One that is open is spent too: what it released, or the ledger, could not be written at the time.
    need(charge.staged or charge.outcome != "kept", "the charge is one of a run that failed.")
    if charge.staged:
        paid = [paid_for(one) for one, _ in charge.stages]
        bought = [paid_for(one) for one in study.statement["parts"]]
        # A stage may have been charged whose release was lost.
        stopped = isinstance(study, StudyRecord) and study.stopped
        alike = bought == paid[: len(bought)] and (stopped or len(bought) == len(paid))
        need(alike, "the charge is of other stages.")
    alike = paid_for(charge.statement) == paid_for(study.statement)
    need(alike, "the charge was made for another statement than that of the release.")
    _, marked, said = charge.model.rpartition(", claims ")
    claimed = not marked or said == study.claims
    need(claimed, "rows, weight, certificate or question are not those of the run that was charged.")
    return state, charge


def paid_for(statement: Fields) -> Fields:
    """A statement without names of runs, and without a plan's stages, which are chosen after the charge."""
    found = {name: value for name, value in statement.items() if name not in ("mechanism", "parts")}
    planned = statement["argument"]["rule"] == "adaptive"
    return found if planned else found | {"parts": [paid_for(part) for part in statement["parts"]]}


SIGNATURE = f"{RECORD}.sig"
# What a signature is for: one made for another purpose does not count.
_NAMESPACE = "private-mcmc"
_SECONDS = 60.0


def sign(folder: Path, key: Path) -> Path:
    """Sign ``study.json``, and with its hashes every file, with a private key of OpenSSH (or its agent's).

    Raises:
        OutputError: where there is a signature already, or ``ssh-keygen`` makes none.
    """
    place = folder / SIGNATURE
    if place.exists() or place.is_symlink():
        raise OutputError(f"{place}: exists already; a signature is never overwritten.")
    made = subprocess.run(
        [_program(), "-Y", "sign", "-n", _NAMESPACE, "-f", str(key), str(folder / RECORD)], check=False
    )
    if made.returncode or not place.is_file():
        raise OutputError(f"{place}: ssh-keygen made no signature with the key {key}.")
    return place


def check_signature(folder: Path, record: bytes, allowed: Path | None) -> str:
    """By whom the record was signed, one of those in the file of ``allowed`` signers (ssh-keygen(1)).

    Raises:
        DeclarationError: unless it was.
    """
    if allowed is None:
        raise Skipped("give --allowed-signers, a file as ssh-keygen(1) describes it")
    place = folder / SIGNATURE
    need(place.is_file() and not place.is_symlink(), f"there is no {SIGNATURE}.")
    common = ["-n", _NAMESPACE, "-s", str(place), "-f", str(allowed)]
    found = _asked("find-principals", common, b"")
    signers = [] if found is None else found.splitlines()
    need(bool(signers), f"{SIGNATURE} is of none of the allowed signers.")
    by = [who for who in signers if _asked("verify", [*common, "-I", who], record) is not None]
    need(bool(by), "the record is not what was signed, or by a key that is not allowed at this time.")
    return f"signed by {by[0]}"


def _asked(what: str, options: list[str], content: bytes) -> str | None:
    """What ``ssh-keygen -Y`` prints; ``None`` where it refuses."""
    command = [_program(), "-Y", what, *options]
    done = subprocess.run(command, input=content, capture_output=True, check=False, timeout=_SECONDS)
    return None if done.returncode else done.stdout.decode(errors="replace")


def _program() -> str:
    found = shutil.which("ssh-keygen")
    if found is None:
        raise OutputError("ssh-keygen: not found; signatures need OpenSSH 8.2 or later.")
    return found
