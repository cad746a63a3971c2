"""A dossier's folder: its place is taken before a run, the record is safe before anything is drawn."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from private_mcmc.dossier.page import page
from private_mcmc.dossier.query import Query
from private_mcmc.dossier.record import RECORD, ReleaseRecord, StudyRecord, checked_record, read_raw
from private_mcmc.errors import OutputError, PrivateMCMCError
from private_mcmc.files import new_file, write_whole
from private_mcmc.records import Fields
from private_mcmc.report import Report

PAGE, DRAWS, MODEL, SCHEMA = "dossier.html", "draws.nc", "model.py", "schema.yaml"
ANSWERS = "answers.csv"
FILES = (PAGE, DRAWS, MODEL, SCHEMA, ANSWERS)
# What a run has released, while the record is not complete.
RELEASE = "release.json"


class NewDossier:
    """A folder whose place is taken; see :func:`new_dossier`."""

    def __init__(self, place: Path, record: Callable[[str], None]) -> None:
        self._place, self._record = place, record

    def keep(self, release: Fields) -> None:
        """Write what was released so far; it is on disk when this returns."""
        kept_in(self._place, release)

    def write(self, study: ReleaseRecord) -> None:
        """Write the record, then all that is made from it."""
        try:
            self._record(study.to_json())
        except OutputError as error:
            kept = self._place / RELEASE
            where = f" Nothing is lost: the release is in {kept}" if kept.exists() else ""
            raise OutputError(f"{error}{where}") from error
        finish(self._place, study)


def kept_in(folder: Path, release: Fields) -> None:
    """Write what a run has released into its folder; it is on disk when this returns."""
    write_whole(folder / RELEASE, json.dumps(release))


@contextlib.contextmanager
def held(folder: str | Path) -> Iterator[None]:
    """Hold a folder that one process at a time works on.

    Raises:
        OutputError: while another one does. A file system without locks tells nothing.
    """
    with contextlib.ExitStack() as opened:
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
            opened.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OutputError(
                f"{folder}: a process that runs still works on it: wait for its end, or stop it first."
            ) from None
        except OSError:  # what comes next tells why
            pass
        yield


@contextlib.contextmanager
def new_dossier(folder: str | Path) -> Iterator[NewDossier]:
    """Take the place of a dossier before the work it will hold; the folder is made if there is none.

    Nothing is left, no empty folder either, if the work ends before anything was released.

    ``OutputError`` if there is a dossier already, or the folder cannot be written.
    """
    place = Path(folder)
    made = [folder for folder in (place, *place.parents) if not os.path.lexists(folder)]
    try:
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(f"{place}: the folder cannot be made ({error.strerror}).") from None
        for name in (*FILES, RELEASE):
            if (place / name).exists():
                raise OutputError(f"{place / name}: exists already; a dossier is never overwritten.")
        with held(place), new_file(place / RECORD) as record:
            yield NewDossier(place, record)
    finally:
        for one in made:
            with contextlib.suppress(OSError):  # it is not empty, or was never made
                one.rmdir()


def finish(folder: Path, study: ReleaseRecord) -> None:
    """Write what is made from the record, and their hashes into it; may be done again if interrupted."""
    try:
        for name in (RECORD, *FILES):
            if (folder / name).is_symlink():  # in somebody else's folder it may lead anywhere
                raise OutputError(f"{name} is a link, which is not followed")
        files = contents(study)
        for name, content in files.items():
            write_whole(folder / name, content)
        write_whole(folder / RECORD, study.to_json({name: digest(text) for name, text in files.items()}))
        (folder / RELEASE).unlink(missing_ok=True)
    except Exception as error:  # whatever drawing runs into must not hide that the release is there
        what = str(error) if isinstance(error, PrivateMCMCError) else type(error).__name__
        raise OutputError(
            f"{folder}: the dossier is not complete ({what}). Nothing is lost: the release is in "
            f"{folder / RECORD}; `private-mcmc report {folder}` writes the rest."
        ) from error


def is_complete(folder: Path) -> bool:
    """Whether the record has the hashes of what is made from it, which is written last."""
    return "files" in read_raw(folder)


def is_raw(folder: Path) -> bool:
    """Whether a run was stopped after it released something, and before there was a record."""
    record = folder / RECORD
    return (folder / RELEASE).exists() and not (record.exists() and record.stat().st_size)


def contents(record: ReleaseRecord) -> dict[str, bytes]:
    """All files but the record, by name."""
    found = {PAGE: page_of(record).to_html().encode()}
    if record.schema:
        found[SCHEMA] = schema_text(record).encode()
    if isinstance(record, Query):
        found[ANSWERS] = record.to_csv().encode()
    if not isinstance(record, StudyRecord):
        return found
    if record.draws:
        found[DRAWS] = netcdf(record)
    if record.model:
        found[MODEL] = record.model.encode()
    return found


def page_of(record: ReleaseRecord) -> Report:
    """The page of a record of any kind."""
    if isinstance(record, Query):
        return record.report()
    if not isinstance(record, StudyRecord):
        raise TypeError(f"{type(record).__name__}: has no page")
    return page(record)


def load_record(folder: str | Path) -> Study | Query:
    """The record in a folder, a study's or a query's.

    Raises:
        DeclarationError: as ``Study.load``.
    """
    raw = read_raw(folder)
    return checked_record(Query, raw, folder) if "kind" in raw else checked_record(Study, raw, folder)


def schema_text(study: ReleaseRecord) -> str:
    """The text of ``schema.yaml``."""
    import yaml

    return str(yaml.safe_dump(dict(study.schema), sort_keys=False, allow_unicode=True, width=100))


def netcdf(study: StudyRecord) -> bytes:
    """The draws for ArviZ, not packed: a reader sees how large they are before any memory is taken."""
    with tempfile.TemporaryDirectory(prefix="private-mcmc-") as scratch:
        place = Path(scratch) / DRAWS
        study.draws_tree().to_netcdf(place, engine="h5netcdf")
        return place.read_bytes()


def digest(content: bytes) -> str:
    """SHA-256, as ``sha256sum`` prints it."""
    return hashlib.sha256(content).hexdigest()


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Study(StudyRecord):
    """One released run: a fit, a plan or a declared kernel. Every value in it is public or released.

    Attributes: :class:`private_mcmc.dossier.record.StudyRecord`.

    Example:
        >>> pmc.Study.load("nowhere")
        Traceback (most recent call last):
            ...
        private_mcmc.errors.DeclarationError: nowhere: no dossier; name the folder that fit wrote.
    """

    def report(self, prob: float = 0.9) -> Report:
        """The dossier: results first, then risk, question, plan, ledger, and what a person must confirm."""
        return page(self, prob)

    def _repr_html_(self) -> str:
        return self.report()._repr_html_()

    def save(self, folder: str | Path) -> Path:
        """Write the dossier into a folder: record, page, draws, model and schema.

        Raises:
            OutputError: if there is a dossier already, or a file cannot be written.
        """
        with new_dossier(folder) as made:
            made.write(self)
        return Path(folder)
