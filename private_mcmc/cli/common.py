"""What the commands share: their options, the files they name, questions before and answers after."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import textwrap
import tokenize
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated

import typer

from private_mcmc.errors import DeclarationError, PrivateMCMCError, foreseen
from private_mcmc.records import Record
from private_mcmc.system import check_writable, visible

if TYPE_CHECKING:
    from private_mcmc.inference.declared import Engine
    from private_mcmc.inference.question import Question
    from private_mcmc.preflight import PreflightReport
    from private_mcmc.release.ledger_state import DataSet, LedgerState, Reservation
    from private_mcmc.report import Report


SchemaOption = Annotated[Path, typer.Option(help="what a table's cells may be: see private-mcmc init")]
NumRows = Annotated[int, typer.Option("--n", help="number of rows (its public bound under add_remove)")]
Epsilon = Annotated[float, typer.Option(help="ε of the target")]
Delta = Annotated[float, typer.Option(help="δ of the target")]
AdjacencyOption = Annotated[str, typer.Option(help="replace_one, add_remove or zero_out")]
ModelOption = Annotated[
    str | None,
    typer.Option(help="a NumPyro model in place of a formula, FILE.py:FUNCTION; arguments are fields"),
]
FormulaOption = Annotated[str | None, typer.Option(help="such as 'death ~ age + log(kappa) + (1 | region)'")]
FamilyOption = Annotated[str, typer.Option(help="bernoulli, poisson, gaussian, categorical, cumulative, …")]
PriorOption = Annotated[
    list[str] | None,
    typer.Option(help="on the users' scale, as 'age ~ normal(0, 0.1)' or 'sigma = 12'; may be repeated"),
]
OptionalDelta = Annotated[
    float | None,
    typer.Option("--delta", help="δ of the target; by default 1e-6, or less where rows are many"),
]
MaxErrorOption = Annotated[
    float | None, typer.Option(help="refuse a larger predicted error of posterior means, in posterior sds")
]
MaxPassesOption = Annotated[
    int | None, typer.Option(help="most passes over the rows, of all stages; fewer may cost error")
]
GuaranteeOption = Annotated[str, typer.Option(help="'run', or 'posterior' for the posterior as well")]
ProfileOption = Annotated[
    list[str] | None, typer.Option(help="predict for a profile, as age=60,sex=male; may be repeated")
]


def _writable(path: Path | None) -> Path | None:
    if path is not None:
        check_writable(path)
    return path


# Checked when the command line is read, before any work.
HtmlOption = Annotated[
    Path | None, typer.Option("--html", help="write an HTML report to this file", callback=_writable)
]
JsonOption = Annotated[bool, typer.Option("--json", help="print JSON")]
EngineOption = Annotated[
    str | None,
    typer.Option(help="who holds the rows: devices,2, or Ray's workers: ray,4 or ray://head:10001,16"),
]


def show(report: Report | PreflightReport, record: object, as_json: bool, html: Path | None = None) -> None:
    """Print a report, or its record as JSON; then write the page where one is asked for."""
    from private_mcmc.report import json_types

    if as_json:
        echo(json.dumps(json_types(record), ensure_ascii=False))
    else:
        report.show()
    # Last, so that what was found is told even if the disk has filled up meanwhile.
    if html is not None:
        report.to_html(html)


def load_model(place: str) -> tuple[Callable[..., object], str]:
    """The function ``NAME`` of the file ``FILE.py``, given as ``FILE.py:NAME``, and the text of the file.

    The text that is shown is the one that runs: it is read once, and no bytecode of an earlier one is taken.
    """
    path, colon, name = place.rpartition(":")
    file = Path(path)
    if not colon or not name.isidentifier() or not file.is_file():
        raise DeclarationError(f"{place!r}: give a file and a function in it, for example model.py:model.")
    if file.suffix != ".py":
        raise DeclarationError(f"{path}: not a Python file.")
    module = ModuleType(f"_model_{file.stem}")
    module.__file__ = str(file)
    sys.modules[module.__name__] = module
    try:
        with tokenize.open(file) as opened:
            source = opened.read()
        exec(compile(source, str(file), "exec"), vars(module))
    except (Exception, SystemExit) as error:
        raise DeclarationError(f"{path} cannot be run: {type(error).__name__}: {error}") from error
    model = getattr(module, name, None)
    if not callable(model):
        raise DeclarationError(f"{path} has no function {name!r}.")
    return model, source


def read_question(
    schema: Path, formula: str | None, model: str | None, family: str, priors: Sequence[str]
) -> Question:
    """The question that a schema and a formula, or a model file, ask."""
    from dataclasses import replace

    from private_mcmc.data.schema import Schema
    from private_mcmc.inference.question import question

    function, source = (None, "") if model is None else load_model(model)
    asked = question(Schema.load(schema), formula, family=family, priors=priors, model=function)
    return asked if model is None else replace(asked, source=source)


def read_engine(given: str | None) -> Engine | None:
    """``devices``, ``ray``, or an address, with how many."""
    from private_mcmc.inference.declared import Devices, Ray

    if given is None:
        return None
    address, comma, count = given.partition(",")
    if not (address.startswith("ray") or address == "devices") or (comma and not count.isdigit()):
        raise DeclarationError(
            f"--engine {given}: devices,COUNT of this process, ray,WORKERS on this machine, or "
            "ray://HOST:PORT,WORKERS."
        )
    many = int(count or 2)
    if address == "devices":
        return Devices(many)
    return Ray(workers=many, address=None if address == "ray" else address)


def read_profile(text: str) -> dict[str, str]:
    """``age=60,sex=male`` by name."""
    found = {}
    for item in text.split(","):
        name, equals, value = item.partition("=")
        if not equals or not name.strip():
            raise DeclarationError(f"--profile {text!r}: FIELD=VALUE,FIELD=VALUE, as in age=60,sex=male.")
        found[name.strip()] = value.strip()
    return found


def split_names(text: str | None) -> tuple[str, ...]:
    """``sex,region`` by name."""
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


def echo(words: str, err: bool = False, nl: bool = True) -> None:
    """Words on standard output, or on standard error: without what would steer the terminal."""
    typer.echo(visible(words), err=err, nl=nl)


ERROR, UNFORESEEN = 3, 4
# As shells say of programs ended by Ctrl-C, and of those whose output nobody reads any more.
INTERRUPTED, UNREAD = 130, 141


def in_words(error: Exception) -> str:
    """An error of the library, of the operating system, of numbers too large, or unforeseen, as one line."""
    if isinstance(error, ArithmeticError):
        return f"{type(error).__name__}: these numbers are too large or too small to compute with."
    if isinstance(error, PrivateMCMCError) or not isinstance(error, OSError):
        shown = foreseen(error)
        return " ".join(f"{type(shown).__name__}: {shown}".split("\n"))
    what = error.strerror or type(error).__name__
    if error.filename is None:
        return f"OSError: reading or writing failed ({what})."
    return f"OSError: {error.filename}: {what}."


def ask(words: str) -> str:
    """A line from standard input, asked for on standard error: standard output is for results."""
    sys.stderr.write(f"{visible(words)} ")
    sys.stderr.flush()
    line = sys.stdin.readline()
    if not line:
        raise EOFError("there is nobody to answer.")
    return line.strip()


def tell(said: Sequence[str]) -> None:
    """Remarks, on standard error; in lines of a terminal's width where one shows them."""
    width = shutil.get_terminal_size().columns if sys.stderr.isatty() else None
    for words in said:
        line = f"Note: {words}"
        echo(line if width is None else textwrap.fill(line, width, break_on_hyphens=False), err=True)


def quiet_end() -> None:
    """Leave nothing for Python to write to a standard output that is closed or full."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def balances(datasets: Sequence[DataSet]) -> Report:
    """What was spent on each data set, and what is left."""
    from private_mcmc.report import Facts, Report, at_most

    blocks = []
    for found in datasets:
        kept, spent, charged = found.filter, found.spent, len(found.charges)
        budget = f"ε = {at_most(kept.epsilon, 6)} at δ = {at_most(kept.delta, 6)}, {found.adjacency}"
        budget += "" if found.unit is None else f", persons by {found.unit!r}"
        cost = f"ε = {at_most(kept.epsilon_of(spent))} ({kept.describe(spent)})"
        count = f", in {charged} charge{'s' * (charged != 1)}, {_open(found)} open" * bool(charged)
        items = ("budget", budget), ("spent", cost + count), ("left", found.what_fits())
        blocks.append(Facts(items, found.name))
    return Report("What has been spent, and what is left", tuple(blocks))


def balance_record(found: DataSet) -> Record:
    """Where a data set stands in plain JSON types, without its fingerprint."""
    kept, spent = found.filter, found.spent
    return {
        "dataset": found.name,
        "adjacency": found.adjacency,
        "unit": found.unit,
        "filter": kept.to_dict(),
        "spent": kept.describe(spent),
        "remaining": kept.describe(found.remaining, left=True),
        "spent_epsilon": kept.epsilon_of(spent),
        "reservations": len(found.charges),
        "open": _open(found),
    }


def _open(found: DataSet) -> int:
    """How many charges are not settled."""
    return sum(one.outcome == "reserved" for one in found.charges)


def charges(state: LedgerState, made: Sequence[Reservation]) -> Report:
    """When, on what, how it ended, how much, what for."""
    from private_mcmc.report import Report, Table

    rows = []
    for one in made:
        cost = state.dataset(one.dataset).filter.describe(one.spent)
        # To the minute; the record has the rest.
        rows.append((one.time[:16].replace("T", " "), one.dataset, one.outcome, cost, one.purpose))
    return Report("Charges", (Table(("time (UTC)", "data set", "outcome", "cost", "purpose"), tuple(rows)),))


def charge_record(state: LedgerState, charge: Reservation) -> Record:
    """One charge as plain JSON types."""
    from private_mcmc.dossier.record import standing

    said = ("outcome", "time", "settled", "model", "dossiers", "statement")
    return standing(state, charge.identity) | {name: getattr(charge, name) for name in said}
