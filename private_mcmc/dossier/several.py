"""One page about several dossiers of one data set: its steps, and what they tell of a person together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from private_mcmc.accounting import Statement, adaptive
from private_mcmc.accounting.risk import argument, in_words, risk
from private_mcmc.accounting.rounding import norm_up
from private_mcmc.data.fields import KEY
from private_mcmc.dossier.folder import Query
from private_mcmc.dossier.record import ReleaseRecord
from private_mcmc.errors import DeclarationError
from private_mcmc.report import Block, Heading, Note, Report, Table, Text, Verdict, at_most
from private_mcmc.target import Unit, check_adjacency

_CHOSEN = (
    "Whether a model fits or predicts better was asked of the same people. Intervals of a model that was "
    "chosen by such an answer take the model as given: they are too narrow, by how much is not known."
)


def together(records: Sequence[ReleaseRecord]) -> Statement:
    """The statement of everything that ``records`` released, in whatever order and however they were chosen.

    **Guarantee**: ``√Σ m_j²``-GDP of releases that are each ``m_j``-GDP. **Assumptions**: what each step was
    given was fixed before the first of them (which is to choose, model or fields may depend on what was
    released). Source: Smith, Thakurta 2022.

    Raises:
        DeclarationError: for a dossier that is named twice, for several data sets, several adjacencies, and
            for a release that has no Gaussian DP statement.
    """
    if len({record.fingerprint for record in records}) < len(records):
        raise DeclarationError("a dossier is named twice: what it released was released once.")
    if len(named := {record.ledger["dataset"] for record in records if record.ledger is not None}) > 1:
        raise DeclarationError(f"data sets {sorted(named)}: only what is about the same people adds up.")
    if any(record.seeded for record in records):
        raise DeclarationError("of a dossier the caller chose the randomness: it is not private.")
    prices = tuple(record.price for record in records)
    for record, price in zip(records, prices, strict=True):
        if price.gdp is None:
            raise DeclarationError(
                f"{record.subject}: has no Gaussian DP statement, which adds up in squares."
            )
    if len({_protected(record) for record in records}) > 1:
        raise DeclarationError("some protect a person and some a row: their statements do not add up.")
    budget = norm_up(price.gdp for price in prices if price.gdp is not None)
    whole = adaptive(budget, prices[0].adjacency, prices, prices[0].unit)
    if not whole.verify():
        raise DeclarationError(
            "a release is in two of these dossiers, or a statement is not what its constants give: "
            "private-mcmc verify each of them."
        )
    return whole


def _protected(record: ReleaseRecord) -> Unit | str:
    """A person with several rows, or with one that enters; empty where every row is another person's."""
    own = record.schema.get(KEY)
    return record.price.unit or str(own.get("person", "") if isinstance(own, Mapping) else "")


def several(records: Sequence[ReleaseRecord]) -> Report:
    """The page: every step with its price, then all of them as one release."""
    records = sorted(records, key=lambda record: record.created)
    whole, delta = together(records), max(record.delta for record in records)
    epsilon = at_most(whole.epsilon(delta))
    steps = tuple(
        (
            record.created[:10],
            record.kind if isinstance(record, Query) else "fit",
            record.table,
            record.subject,
            at_most(record.price.epsilon(delta)),
            f"{at_most(record.price.gdp or 0.0)}-GDP",
        )
        for record in records
    )
    blocks: list[Block] = [
        Verdict(
            "Private", f"All {len(records)} together meet ε = {epsilon} at δ = {at_most(delta)}.", "good"
        ),
        Table(("made", "step", "table", "question", f"ε at δ = {at_most(delta)}", "price"), steps),
        Text("Prices add up in squares: the last column's, not those of ε, make the sum."),
    ]
    kinds = {record.kind for record in records if isinstance(record, Query)}
    if kinds & {"check", "compare"}:
        blocks.append(Note(_CHOSEN, "unsure"))
    if any(record.ledger is None for record in records):
        blocks.append(
            Note("Nothing kept count of some of these: other releases may be missing here.", "unsure")
        )
    told = risk(whole, delta)
    return Report(
        "One study, all of its releases",
        (
            *blocks,
            Heading("What can be learnt about one person from all of it"),
            Text(in_words(told, check_adjacency(whole.adjacency), whole.unit)),
            argument(whole, delta),
            Text("Each folder has the dossier of its step, which `private-mcmc verify` checks."),
        ),
    )
