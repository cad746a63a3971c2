"""A dossier's folder: its place is taken before a run, the record is safe before anything is drawn."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from private_mcmc.analysis import read_analysis
from private_mcmc.analysis.analysis import Analysis, Released
from private_mcmc.data.schema import Schema, as_yaml
from private_mcmc.dossier.page import columns_of, of_two, of_whom, page, protection, sections
from private_mcmc.dossier.record import KNOWN, ReleaseRecord, StudyRecord, checked_record, texts
from private_mcmc.dossier.shape import RECORD, read_raw
from private_mcmc.errors import DeclarationError, LedgerError, OutputError, PrivateMCMCError
from private_mcmc.planning.prediction import elements
from private_mcmc.records import Fields, Record, sync_folder
from private_mcmc.release import SumsPlan
from private_mcmc.report import Facts, Report, as_csv
from private_mcmc.system import new_file, write_whole
from private_mcmc.target import check_adjacency

if TYPE_CHECKING:
    import pandas

PAGE, DRAWS, MODEL, SCHEMA = "dossier.html", "draws.csv", "model.py", "schema.yaml"
ANSWERS = "answers.csv"
FILES = (PAGE, DRAWS, MODEL, SCHEMA, ANSWERS)
# What a run has released, while the record is not complete.
RELEASE = "release.json"


class NewDossier:
    """A folder whose place is taken, see :func:`new_dossier`, or of a run that is resumed."""

    def __init__(self, place: Path, record: Callable[[str], None] | None = None) -> None:
        self._place, self._record = place, record or partial(_put, place, RECORD)
        self.bought = self._whole = (place / RELEASE).exists()

    def keep(self, release: Fields) -> None:
        """Write what was released so far; it is on disk when this returns."""
        self.bought |= bool("kind" in release or release["before"] or release["stages"])
        self._whole = False
        _put(self._place, RELEASE, json.dumps(release))
        self._whole = True

    def write(self, study: ReleaseRecord) -> None:
        """Write the record, then all that is made from it; where there is no room, to standard output."""
        try:
            self._record(study.to_json())
        except OutputError as error:
            if self._whole:
                where = f" Nothing is lost: the release is in {self._place / RELEASE}"
            elif where := " Its record was printed, and is nowhere else: keep it." * self.bought:
                print(study.to_json())
            raise OutputError(f"{error}{where}") from error
        finish(self._place, study)


def _put(folder: Path, name: str, content: str | bytes) -> None:
    if (folder / name).is_symlink():  # in somebody else's folder it may lead anywhere
        raise OutputError(f"{name} is a link, which is not followed")
    write_whole(folder / name, content)


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

    Nothing is left, no empty folder either, if the work ends before anything was released, except by a
    ledger that cannot be written.

    ``OutputError`` if there is a dossier already, or the folder cannot be written.
    """
    place = Path(folder)
    made = [folder for folder in (place, *place.parents) if not os.path.lexists(folder)]
    try:
        try:
            place.mkdir(parents=True, exist_ok=True)
            for one in made:
                sync_folder(one.parent)
        except OSError as error:
            raise OutputError(f"{place}: the folder cannot be made ({error.strerror}).") from None
        with held(place):
            # Only now: whoever held it before may have released.
            for name in (*FILES, RELEASE):
                if os.path.lexists(place / name):  # a link may lead to a file that is made by writing there
                    raise OutputError(f"{place / name}: exists already; a dossier is never overwritten.")
            with new_file(place / RECORD) as record:
                dossier = NewDossier(place, record)
                try:
                    yield dossier
                except LedgerError:
                    dossier.bought = True  # of a charge that is open still, this folder alone tells
                    raise
                finally:
                    if not dossier.bought:
                        (place / RELEASE).unlink(missing_ok=True)
    finally:
        for one in made:
            with contextlib.suppress(OSError):  # it is not empty, or was never made
                one.rmdir()


def finish(folder: Path, study: ReleaseRecord) -> None:
    """Write what is made from the record, and their hashes into it; may be done again if interrupted."""
    try:
        files = {name: make() for name, make in contents(study).items()}
        hashes = {name: digest(text) for name, text in files.items()}
        for name, content in (files | {RECORD: study.to_json(hashes).encode()}).items():
            _put(folder, name, content)
        if study.ledger is None or study.fingerprint in KNOWN:
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


def contents(record: ReleaseRecord) -> dict[str, Callable[[], bytes]]:
    """What makes each of the files but the record, by name."""
    found = {PAGE: lambda: record.report().to_html().encode()}
    if record.schema:
        found[SCHEMA] = lambda: as_yaml(dict(record.schema)).encode()
    if isinstance(record, Query):
        found[ANSWERS] = lambda: record.to_csv().encode()
    if isinstance(record, StudyRecord) and record.draws:
        found[DRAWS] = lambda: _draws_csv(record).encode()
    if isinstance(record, StudyRecord) and record.model:
        found[MODEL] = record.model.encode
    return found


def load_record(folder: str | Path) -> Study | Query:
    """The record in a folder, a study's or a query's.

    Raises:
        DeclarationError: as ``Study.load``.
    """
    raw = read_raw(folder)
    return checked_record(Query, raw, folder) if "kind" in raw else checked_record(Study, raw, folder)


def _draws_csv(study: StudyRecord) -> str:
    """A line for each draw: its chain and iteration, then every coefficient, or every value of a site.

    As ``posterior::as_draws_df`` has them in R; nine digits are more than any draw has.
    """
    import pandas

    frame = pandas.DataFrame(study.answers().by_name if study.formula else elements(study.arrays))
    index, count = np.arange(len(frame)), len(frame) // study.chains
    counted = {".chain": index // count + 1, ".iteration": index % count + 1, ".draw": index + 1}
    whole = pandas.concat([pandas.DataFrame(counted), frame], axis=1)
    return str(whole.to_csv(index=False, float_format="%.9g", lineterminator="\n"))


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
        private_mcmc.errors.DeclarationError: nowhere: no dossier; name a folder that private-mcmc wrote.
    """

    def report(self, prob: float = 0.9) -> Report:
        """The dossier: results first, then risk, question, plan, ledger, and what a person must confirm."""
        return page(self, prob)

    def save(self, folder: str | Path) -> Path:
        """Write the dossier into a folder: record, page, draws, model and schema.

        Raises:
            OutputError: if there is a dossier already, or a file cannot be written.
        """
        with new_dossier(folder) as made:
            made.write(self)
        return Path(folder)


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Query(ReleaseRecord):
    """One release of noised sums. Every value in it is public or released.

    Attributes: those of every record, and
        kind: ``describe``, ``check`` or ``compare``.
        question: what was asked, from which cells and their weights are made again.
        gdp: what was paid: noise follows from it.
        released: the noised sums.

    Example:
        >>> pmc.Query.load("nowhere")
        Traceback (most recent call last):
            ...
        private_mcmc.errors.DeclarationError: nowhere: no dossier; name a folder that private-mcmc wrote.
    """

    kind: str
    question: Fields
    gdp: float
    released: tuple[float, ...]

    @property
    def subject(self) -> str:
        """The kind and the fields."""
        return f"{self.kind} {self.analysis.title}"

    @property
    def claims(self) -> str:
        """A mark of rows and question."""
        text = json.dumps([self.rows, self.kind, self.question], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @cached_property
    def analysis(self) -> Analysis:
        """What was asked.

        Raises:
            DeclarationError: for a question that is none.
        """
        return read_analysis(self.kind, Schema.from_dict(texts(self.schema)), self.question)

    @property
    def mechanism(self) -> SumsPlan:
        """What was released, by its price."""
        return self.analysis.mechanism(self.gdp, self.n, check_adjacency(self.adjacency))

    @property
    def found(self) -> Released:
        """The released sums by family."""
        mechanism = self.mechanism
        if len(self.released) != mechanism.noise.size:
            raise DeclarationError(f"released: {len(self.released)} numbers, not {mechanism.noise.size}.")
        return self.analysis.released(mechanism, self.released)

    def report(self, prob: float = 0.9) -> Report:
        """The dossier's page: a function of the record alone."""
        asked = Facts((*of_whom(self), ("question", self.subject), *protection(self)))
        return sections(
            self,
            f"{self.subject}, {self.table}",
            self.analysis.blocks(self.found, prob),
            [asked, columns_of(self.analysis.schema, self.analysis.fields)],
            [of_two(self), *self.analysis.remarks],
            "The schema's bounds and levels, the fields, cells and bins",
        )

    def lines(self, prob: float = 0.9) -> list[Record]:
        """The answers as lines, all with the same columns."""
        if not 0 < prob < 1:
            raise DeclarationError(f"prob={prob}: must be between 0 and 1.")
        return self.analysis.lines(self.found, prob)

    def answers(self, prob: float = 0.9) -> pandas.DataFrame:
        """The answers as a data frame, with the columns of ``answers.csv``; ``prob`` is of the intervals."""
        import pandas

        return pandas.DataFrame(self.lines(prob))

    def to_csv(self, prob: float = 0.9) -> str:
        """The answers as the text of a CSV file."""
        return as_csv(self.lines(prob))
