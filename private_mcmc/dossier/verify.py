"""The check of a dossier from its folder alone, on any machine: numbers recomputed, pages made again."""

from __future__ import annotations

import io
import json
import re
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from private_mcmc.dossier.claims import Check, Skipped, checked, close, need, recomputed, same_library
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
from private_mcmc.dossier.record import RECORD, StudyRecord, no_dossier
from private_mcmc.errors import DeclarationError, PrivateMCMCError
from private_mcmc.records import Fields
from private_mcmc.report import Report, Table, Verdict
from private_mcmc.report.blocks import Tone

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
# Of a picture's pixels, from 0 to 1: what may differ from all pixels that touch the place.
_SHADE = 0.4


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
        return {"ok": self.ok, "dossier": self.folder, "checks": [vars(one) for one in self.checks]}

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
    whole = (
        checked("the record's fingerprint", lambda: _fingerprint(study, raw)),
        checked("hashes of the files", lambda: _files(place, raw, study)),
    )
    copies = (
        checked("model.py and schema.yaml", lambda: _copies(place, study)),
        checked("draws.nc against the record", lambda: _draws(place, study)),
        checked("the page, made again", lambda: _page(place, study)),
        checked("forest.png, drawn again", lambda: _forest(place, study)),
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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import arviz
    with tempfile.TemporaryDirectory(prefix="private-mcmc-") as scratch:
        # A copy, which the library may keep open.
        copy = Path(scratch) / DRAWS
        copy.write_bytes((place / DRAWS).read_bytes())
        found = arviz.from_netcdf(str(copy), engine="h5netcdf").load()
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


def _page(place: Path, study: StudyRecord) -> str:
    same_library(study)
    found, wanted = (place / PAGE).read_text(encoding="utf-8"), page(study).to_html()
    need(_SVG.sub("", found) == _SVG.sub("", wanted), "its words or numbers are not those of the record.")
    drawings = list(zip(_SVG.findall(found), _SVG.findall(wanted), strict=True))
    if study.versions.get("matplotlib") != version("matplotlib"):
        return "words and numbers; its drawings were made by another version of matplotlib"
    need(all(_alike(one, other) for one, other in drawings), "a drawing is not that of the record.")
    return "words, numbers and drawings"


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
        raise Skipped("nothing to draw")
    if study.versions.get("matplotlib") != version("matplotlib"):
        raise Skipped("drawn by another version of matplotlib; answers().forest() draws it again")
    found = (place / FOREST).read_bytes()
    need(found == wanted or _same_picture(found, wanted), "it is not that of the record.")
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
    cost = state.dataset(charge.dataset).filter.cost(study.price)
    need(cost <= charge.cost * (1 + Fraction(1, 10**9)), "less was charged than the release costs.")
    again = standing(state, charge.identity) | {"file": books["file"]}
    need(close(books, again), "budget, prices or what is left are not those of the ledger.")
    return f"charged to {charge.dataset!r} at {charge.time}"


def _paid_for(statement: Fields) -> Fields:
    """A statement without names of runs, and without a plan's stages, which are chosen after the charge."""
    found = {name: value for name, value in statement.items() if name not in ("mechanism", "parts")}
    later = statement["argument"]["rule"] == "adaptive"
    return found if later else found | {"parts": [_paid_for(part) for part in statement["parts"]]}
