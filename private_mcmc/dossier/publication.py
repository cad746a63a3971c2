"""What is published of finished dossiers: an entry of OpenDP's Deployments Registry, one page about several.

Names and choices of the entry are those of the registry's template (third tier of
github.com/opendp/deployments-registry-data); ``docs/dossier.md`` says which question of NIST SP 800-226 each
answers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from private_mcmc.accounting import Statement, adaptive
from private_mcmc.accounting.risk import details, in_words, risk
from private_mcmc.accounting.rounding import norm_up
from private_mcmc.data.fields import KEY
from private_mcmc.data.schema import read_declaration
from private_mcmc.dossier.folder import Query
from private_mcmc.dossier.record import ReleaseRecord, StudyRecord, not_protected
from private_mcmc.dossier.shape import declared_column
from private_mcmc.errors import DeclarationError
from private_mcmc.records import Fields, Record
from private_mcmc.report import Block, Heading, Note, Report, Table, Text, Verdict, at_most
from private_mcmc.target import Unit, check_adjacency

# What only people know, and the question that it answers.
QUESTIONS: Mapping[str, str] = {
    "name": "how the product is called",
    "curators": "who publishes it",
    "analysts": "who chose formula, priors and ε, and saw results first",
    "reviewers": "who checked the dossier",
    "intended_use": "what it is for",
    "region": "where the people live, and whose laws apply",
    "sector": "which sector it is of",
    "why_epsilon": "why this ε and δ, and who agreed",
    "before": "what was looked at or computed of the table before, and who set the bounds",
    "post_processing": "what was done to the draws afterwards",
    "access": "who may read the table, and who saw it run",
    "retention": "until when the table, checkpoints and ledger are kept, and how they are deleted",
    "audit": "where an audit of the software or of this run is",
    "authors": "who wrote this entry",
}
_LISTS = ("curators", "authors")
_SECTORS = ("Technology", "Healthcare", "Education", "Government", "Energy", "Finance")
_UNSAID = "not stated"


def read_about(path: Path) -> Fields:
    """What people say of a deployment: a YAML file with some of the names in ``QUESTIONS``.

    Raises:
        DeclarationError: for another name, a list where a text is expected or the reverse.
    """
    said = read_declaration(path)
    if not isinstance(said, Mapping):
        raise DeclarationError(
            f"{path}: names and texts, as intended_use: …; it takes {', '.join(QUESTIONS)}."
        )
    for name, value in said.items():
        if name not in QUESTIONS:
            raise DeclarationError(f"{path}: {name!r} is no question. There are {', '.join(QUESTIONS)}.")
        many = isinstance(value, list) and value and all(isinstance(each, str) for each in value)
        if not (many if name in _LISTS else isinstance(value, str)):
            raise DeclarationError(f"{path}: {name}: {'a list of texts' if name in _LISTS else 'a text'}.")
    if said.get("sector", _SECTORS[0]) not in _SECTORS:
        raise DeclarationError(f"{path}: sector: one of {', '.join(_SECTORS)}.")
    return said


def with_answers(page: Report, said: Fields) -> Report:
    """A dossier's page, and below it what only people know, question by question."""
    answers = tuple((question, _answer(said, name)) for name, question in QUESTIONS.items())
    told = Table(("question", "answer"), answers)
    return Report(page.title, (*page.blocks, Heading("What its publishers say"), told))


def _answer(said: Fields, name: str) -> str:
    found = said.get(name, _UNSAID)
    return found if isinstance(found, str) else ", ".join(found)


def deployment(study: StudyRecord, said: Fields) -> tuple[Record, list[str]]:
    """The registry's entry, valid against its schema, and the names of questions that nobody answered."""
    price, unit = study.price, study.price.unit

    def told(*names: str) -> str:
        return "\n".join(f"- {QUESTIONS[name]}: {_answer(said, name)}" for name in names)

    name = str(said.get("name") or study.formula or study.table or "a private run")
    unprotected = "\n".join(f"- {what}: {value}" for what, value in not_protected(study).items())
    stages = ", ".join(str(stage["name"]) for stage in study.stages)
    books = "no ledger counts it"
    if (kept := study.ledger) is not None:
        books = f"one filter (GDP) for all releases of {kept['dataset']!r}: {kept['cost']} of "
        books += f"{kept['budget']}, {kept['left']} left"
    versions = ", ".join(f"{library} {version}" for library, version in study.versions.items())
    basic: Record = {
        "name": name,
        "data_curators": list(said.get("curators", [_UNSAID])),
        "description": f"Draws of a Bayesian model given noised releases of {study.table or 'a table'}."
        if study.draws
        else f"Noised posterior expectations of {study.table or 'a table'}.",
        "intended_use": said.get("intended_use", _UNSAID),
        "data_product_type": "Machine learning model" if study.draws else "Summary statistics",
        "data_product_region": said.get("region", _UNSAID),
        "publication_date": study.created[:10],
    }
    if "sector" in said:
        basic["data_product_sector"] = said["sector"]
    entry: Record = {
        "basic": basic,
        "dp_variant": {
            "variant_name": "Approximate DP" if study.delta else "Pure DP",
            "data_domain": f"Tables of {study.n:,} {'rows' if unit is None else 'persons'}: "
            + "; ".join(f"{column}: {declared_column(domain)}" for column, domain in study.rows.items()),
            "unprotected_quantities": unprotected,
        },
        "privacy_loss": {
            "privacy_unit": "One row" if unit is None else f"One person ({unit.name})",
            "privacy_unit_details": f"{study.adjacency}: {study.protects}.",
            "privacy_parameters": {"epsilon": study.epsilon, "delta": study.delta},
            "privacy_parameters_details": price.summary(study.delta),
        },
        "deployment_model": {
            "model_name": "Central",
            "actors": told("curators", "analysts", "reviewers", "access"),
            "release_type": "One release",
            "release_type_details": books,
            "data_source_type": "Static",
            "access_type": "Non-interactive",
        },
        "accounting": {
            "post_processing": "Draws are computed from what was released, at no cost.\n"
            + told("post_processing"),
            "composition": f"{'Stages: ' + stages + '. ' if stages else ''}In the ledger: {books}.",
        },
        "implementation": {
            "preprocessing_and_hyperparameter_tuning": told("before"),
            "mechanisms": "\n".join(f"- {line}" for line in [*price.argument.assumptions, versions])
            + "\n"
            + told("retention", "audit"),
            "justification": told("why_epsilon"),
        },
        "administrative": {
            "sources": f"study.json, SHA-256 of its record {study.fingerprint}",
            "registry_authors": list(said.get("authors", [_UNSAID])),
        },
    }
    slug = re.sub(r"[^a-z0-9]+", "-", f"{name} {study.fingerprint[:8]}".lower()).strip("-")
    unsaid = [question for question in QUESTIONS if question not in said]
    return {"url_slug": slug, "status": "Draft", "tier": 3, "deployment": entry}, unsaid


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
            details(whole, delta),
            Text("Each folder has the dossier of its step, which `private-mcmc verify` checks."),
        ),
    )
