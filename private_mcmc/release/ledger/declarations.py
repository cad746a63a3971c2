"""What a ledger's owner declares (data sets, disjoint parts, cohorts of persons and waves of them), and what
entries say: each is applied to the state before it, or refused as one that cannot be.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction

from private_mcmc.errors import DeclarationError, LedgerError
from private_mcmc.records import as_seen
from private_mcmc.release.ledger.file import Columns, Entry, LedgerFile, Transaction, data_mark
from private_mcmc.release.ledger.filter import (
    Cohorts,
    Filter,
    FilterKind,
    Membership,
    check_cohorts,
    filter_for,
)
from private_mcmc.release.ledger.state import Balance, DataSet, LedgerState, Reservation
from private_mcmc.target import Target, check_adjacency


class Declarations:
    """The part of a ledger that is written before anything is charged."""

    _file: LedgerFile

    def declare(
        self,
        name: str,
        target: Target,
        *,
        filter: FilterKind | None = None,
        data: Columns | None = None,
        unit: str | None = None,
    ) -> Balance:
        """Declare a data set, its adjacency and its budget, once and for good.

        Args:
            name: the owner's name for it.
            target: adjacency and total ``(ε, δ)`` of everything that will ever be released on it.
            filter: currency of the charges; see :class:`Filter`.
            data: its columns, to recognise it later; recorded at the first charge if left out.
            unit: name of the column of identifiers, where persons with several rows are protected.
        """
        if not name or "/" in name:
            raise DeclarationError(f"data set name {name!r}: not empty and without '/'.")
        budget = filter_for(target, filter)
        with self._file.writing() as transaction:
            state = replay(transaction.entries)
            if name in state.datasets:
                raise LedgerError(
                    f"{self._file.path}: {name!r} is declared already; a budget is never changed."
                )
            check_name("data set", name, state.datasets)
            mark = None if data is None else data_mark(transaction.key, data)
            refuse_second_name(None if mark is None else state.other_name(mark))
            transaction.append(
                {
                    "kind": "dataset",
                    "name": name,
                    "adjacency": target.adjacency,
                    "filter": budget.to_dict(),
                    "fingerprint": mark,
                    "whole": None,
                    "by": None,
                    "time": now(),
                    **({} if unit is None else {"unit": unit}),
                }
            )
            return _balance(transaction, name)

    def partition(self, name: str, by: str, parts: tuple[str, ...]) -> tuple[str, ...]:
        """Declare disjoint parts ``name/by=part``, the names to charge: their releases do not add up.

        **Assumption**, the owner's: each person is in at most one part, decided by public facts alone and
        not by private values. Without this declaration releases always add up.
        """
        if not by or not parts or len(set(parts)) != len(parts) or any("/" in word for word in (by, *parts)):
            raise DeclarationError("a partition needs a name and different part names, all without '/'.")
        names = tuple(f"{name}/{by}={part}" for part in parts)
        with self._file.writing() as transaction:
            state = replay(transaction.entries)
            whole = state.dataset(name)
            if whole.cohorts:
                raise DeclarationError(f"{name!r} is a wave: parts are declared of the whole data set.")
            # Words with '=' may spell the name of another partition's part.
            if any(
                d.whole == whole.name and (d.by == by or d.name in names) for d in state.datasets.values()
            ):
                raise LedgerError(f"{self._file.path}: {name!r} is partitioned by {by!r} already.")
            for part in names:
                check_name("part", part, (*names, *state.datasets))
            for part in names:
                transaction.append(
                    {"kind": "dataset", "name": part, "whole": whole.name, "by": by, "time": now()}
                )
        return names

    def cohorts(
        self, name: str, cohorts: tuple[str, ...], *, membership: Membership, at_most: int = 1
    ) -> Cohorts:
        """Declare cohorts of persons: releases that no person can be in twice do not add up.

        A registry that releases every year has new rows for old persons. A person is charged the largest
        sum of releases over the sets of up to ``at_most`` cohorts; what is charged to the data set as a
        whole counts for everybody. Later cohorts are declared by another call.

        **Assumption**, the owner's: the declared ``membership``, one of

        - ``"public"``: which cohorts a person is in is public, fixed before the first release and not changed
          by whatever replaces that person (the year of entry, say);
        - ``"exclusive"``: which ones is private, but there are never more than ``at_most``. This serves
          ``add_remove`` and ``zero_out`` only: somebody replaced could leave one cohort for another.

        Where neither is known, declare none: releases then add up.

        Args:
            name: a data set declared with ``unit=…``.
            cohorts: names of new ones.
            membership: what is known of who is in which.
            at_most: the most cohorts that one person is in.
        """
        with self._file.writing() as transaction:
            state = replay(transaction.entries)
            kept = state.dataset(name)
            if kept.whole is not None:
                raise DeclarationError(f"{name!r} is a part: cohorts are declared of the whole data set.")
            if kept.unit is None:
                raise DeclarationError(
                    f"{name!r} is kept for rows: a ledger knows persons in several releases by cohorts only "
                    "where persons are protected. Declare the data set with unit=…, a column of identifiers."
                )
            found, before = Cohorts(tuple(cohorts), membership, at_most), state.cohorts.get(name)
            check_cohorts(found, kept.adjacency, before)
            for cohort in cohorts:
                check_name("cohort", cohort, (*cohorts, *(() if before is None else before.names)))
            transaction.append({"kind": "cohorts", "dataset": name, **found.to_dict(), "time": now()})
            return replay(transaction.entries).cohorts[name]

    def wave(self, name: str, wave: str, cohorts: tuple[str, ...]) -> str:
        """Declare one year's rows, of persons of these cohorts and nobody else: ``name/wave``, to charge."""
        if not wave or "/" in wave or "=" in wave or not cohorts:
            raise DeclarationError("a wave needs a name without '/' and '=', and the cohorts that are in it.")
        with self._file.writing() as transaction:
            state = replay(transaction.entries)
            full, declared = f"{state.dataset(name).name}/{wave}", state.cohorts.get(name)
            unknown = sorted(set(cohorts) - set(() if declared is None else declared.names))
            if unknown:
                raise LedgerError(
                    f"{self._file.path}: cohorts {unknown} of {name!r} are not declared, so that what their "
                    "persons were in before is not known. Declare them, or charge the data set as a whole."
                )
            if full in state.datasets:
                raise LedgerError(f"{self._file.path}: {full!r} is declared already.")
            check_name("wave", full, state.datasets)
            transaction.append(
                {"kind": "wave", "name": full, "whole": name, "cohorts": sorted(set(cohorts)), "time": now()}
            )
        return full


def check_name(what: str, name: str, known: Iterable[str] = ()) -> None:
    """Refuse a name that cannot be shown as it is, or that differs from a known one in looks alone.

    Spaces, invisible signs, capitals and the ways to write an accent do not tell two names apart:
    a script that reads a list with ``"2023 "`` in it would make a cohort beside ``"2023"`` and charge
    neither for the other.

    Raises:
        DeclarationError: naming both.
    """
    if not name or name != name.strip() or not name.isprintable():
        raise DeclarationError(
            f"{what} {name!r}: not empty, without spaces at its ends and unprintable signs."
        )
    if alike := next((one for one in known if one != name and _looks(one) == _looks(name)), None):
        raise DeclarationError(
            f"{what} {name!r} looks like {alike!r}, which is there: what is charged to one would not count "
            "for the other. Give it another name, or charge that one."
        )


def _looks(name: str) -> str:
    return "".join(as_seen(name).casefold().split())


def refuse_second_name(known: str | None) -> None:
    """Refuse rows that the ledger knows as ``known``: what both are charged would not add up for anybody."""
    if known is not None:
        raise LedgerError(
            f"these are the data that this ledger knows as {known!r}: under a second name a second budget "
            "would be spent on the same people. Charge them to that name."
        )


def now() -> str:
    """The time of an entry, UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _balance(transaction: Transaction, name: str) -> Balance:
    state = replay(transaction.entries)
    return state.balance(state.dataset(name))


_FIELDS = {
    kind: {"kind", "time", *names.split()}
    for kind, names in {
        "dataset": "name adjacency filter fingerprint whole by unit",
        "cohorts": "dataset names membership at_most",
        "wave": "name whole cohorts",
        "fingerprint": "dataset fingerprint",
        "reserve": "id dataset cost statement purpose model dossiers",
        "dossier": "id fingerprint",
        "settle": "id outcome",
    }.items()
}


def replay(entries: Iterable[Entry]) -> LedgerState:
    """The state after all entries."""
    datasets: dict[str, DataSet] = {}
    reservations: dict[str, Reservation] = {}
    cohorts: dict[str, Cohorts] = {}
    for number, entry in enumerate(entries, start=1):
        try:
            _apply(entry, datasets, reservations, cohorts)
        except (KeyError, TypeError, ValueError, ArithmeticError, AttributeError, LedgerError) as error:
            raise LedgerError(
                f"entry {number} of the ledger makes no sense to this version ({type(error).__name__}): it "
                "was written by a newer version or tampered with. Nothing is run against it."
            ) from error
    return LedgerState(datasets, reservations, cohorts)


def _apply(
    entry: Entry,
    datasets: dict[str, DataSet],
    reservations: dict[str, Reservation],
    cohorts: dict[str, Cohorts],
) -> None:
    kind = entry["kind"]
    # A field that a later version writes may change what the others mean.
    if not set(entry) <= _FIELDS[kind]:
        raise ValueError("unknown fields")
    if kind in ("cohorts", "wave"):
        _apply_cohorts(entry, datasets, cohorts)
    elif kind == "dataset":
        new = _dataset(entry, datasets)
        if new.name in datasets:
            raise ValueError("declared twice")
        datasets[new.name] = new
    elif kind == "fingerprint":
        known = datasets[entry["dataset"]]
        datasets[known.name] = replace(known, fingerprint=str(entry["fingerprint"]))
    elif kind == "reserve":
        cost, of = Fraction(entry["cost"]), datasets[entry["dataset"]]
        if not 0 <= cost <= of.filter.limit or entry["id"] in reservations:
            raise ValueError("a charge that cannot be")
        reservations[entry["id"]] = Reservation(
            identity=str(entry["id"]),
            dataset=of.name,
            cost=cost,
            outcome="reserved",
            statement=dict(entry["statement"]),
            purpose=str(entry["purpose"]),
            model=str(entry["model"]),
            time=str(entry["time"]),
            dossiers=() if entry.get("dossiers") is True else None,
        )
    elif kind == "dossier":
        before = reservations[entry["id"]]
        known_by = (*(before.dossiers or ()), str(entry["fingerprint"]))
        reservations[entry["id"]] = replace(before, dossiers=known_by)
    else:
        if entry["outcome"] not in ("released", "kept"):
            raise ValueError("unknown outcome")
        before = reservations[entry["id"]]
        reservations[entry["id"]] = replace(before, outcome=entry["outcome"], settled=str(entry["time"]))


def _apply_cohorts(entry: Entry, datasets: dict[str, DataSet], cohorts: dict[str, Cohorts]) -> None:
    if entry["kind"] == "cohorts":
        whole = datasets[entry["dataset"]]
        new = Cohorts(tuple(entry["names"]), entry["membership"], int(entry["at_most"]))
        check_cohorts(new, whole.adjacency, cohorts.get(whole.name))
        cohorts[whole.name] = cohorts[whole.name].joined(new) if whole.name in cohorts else new
        return
    whole, held = datasets[entry["whole"]], frozenset(entry["cohorts"])
    if not held or not held <= set(cohorts[whole.name].names) or entry["name"] in datasets:
        raise ValueError("a wave that cannot be")
    datasets[entry["name"]] = replace(
        whole, name=str(entry["name"]), fingerprint=None, whole=whole.name, cohorts=held
    )


def _dataset(entry: Entry, datasets: Mapping[str, DataSet]) -> DataSet:
    if entry["whole"] is not None:
        whole = datasets[entry["whole"]]
        return replace(
            whole, name=str(entry["name"]), fingerprint=None, whole=whole.name, by=str(entry["by"])
        )
    budget = entry["filter"]
    numbers = {name: float(budget[name]) for name in ("epsilon", "delta", "order")}
    kept = Filter(**{**budget, **numbers, "limit": Fraction(budget["limit"])})
    unit = str(entry["unit"]) if "unit" in entry else None
    adjacency = check_adjacency(entry["adjacency"])
    return DataSet(str(entry["name"]), adjacency, kept, entry["fingerprint"], unit=unit)
