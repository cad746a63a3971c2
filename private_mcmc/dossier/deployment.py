"""A dossier as an entry of OpenDP's Deployments Registry, and what a release does not protect.

Names and choices are those of the registry's template (github.com/opendp/deployments-registry-data, third
tier); ``docs/dossier.md`` says which question of NIST SP 800-226 each answers.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from pathlib import Path

from private_mcmc.accounting.risk import whom
from private_mcmc.data.schema import Schema, read_declaration
from private_mcmc.dossier.record import ReleaseRecord, StudyRecord, texts
from private_mcmc.errors import DeclarationError
from private_mcmc.records import Fields, Record
from private_mcmc.target import check_adjacency

# What only people know, and the question that it answers. Of lists there may be several.
QUESTIONS: Mapping[str, str] = {
    "name": "how the product is called",
    "curators": "who publishes it (a list)",
    "analysts": "who chose formula, priors and ε, and saw results first",
    "reviewers": "who checked the dossier",
    "intended_use": "what it is for",
    "region": "where the people live, and whose laws apply",
    "sector": "Technology, Healthcare, Education, Government, Energy or Finance",
    "why_epsilon": "why this ε and δ, and who agreed",
    "before": "what was looked at or computed of the table before, and who set the bounds",
    "post_processing": "what was done to the draws afterwards",
    "access": "who may read the table, and who saw it run",
    "retention": "until when the table, checkpoints and ledger are kept, and how they are deleted",
    "audit": "where an audit of the software or of this run is",
    "authors": "who wrote this entry (a list)",
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
            near = difflib.get_close_matches(str(name), QUESTIONS, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else f" There are {', '.join(QUESTIONS)}."
            raise DeclarationError(f"{path}: {name!r} is no question.{hint}")
        many = isinstance(value, list) and value and all(isinstance(each, str) for each in value)
        if not (many if name in _LISTS else isinstance(value, str)):
            raise DeclarationError(f"{path}: {name}: {'a list of texts' if name in _LISTS else 'a text'}.")
    if said.get("sector", _SECTORS[0]) not in _SECTORS:
        raise DeclarationError(f"{path}: sector: one of {', '.join(_SECTORS)}.")
    return said


def not_protected(study: ReleaseRecord) -> dict[str, str]:
    """Everything that a release tells and no statement covers, by what it is."""
    what = "rows" if study.price.unit is None else "persons"
    number = f"n = {study.n:,}, the number of {what}"
    if study.adjacency != "replace_one":
        number = f"{study.n:,}, a public bound of the number of {what}; the number itself is protected"
    declared = f"columns {', '.join(study.rows)} and what a row may hold in each"
    if study.schema:
        schema = Schema.from_dict(texts(study.schema))
        fields = [field for field in schema.fields if field.is_used]
        levels = sum(len(field.all_levels) for field in fields if field.is_category)
        declared = (
            f"names, types, ranges, codes of missing values and {levels} levels of {len(fields)} fields, "
            "as declared: whether any row has a level is protected"
        )
    asked = f"{study.subject}; ε, δ, cells and bins"
    if isinstance(study, StudyRecord):
        asked = f"formula {study.formula!r}, family and priors" if study.formula else "the model's program"
        asked += "; ε, δ, guarantee and the plan"
    return {
        "number": number,
        "declarations": declared,
        "question": asked,
        "refusals": "whether the table was refused: a cell, a shape or a file without a declared fate",
        "existence": f"that a run was made of {study.table or 'rows in memory'}, when, and what it cost",
        "time": "how long the run took, and what its machine's memory, caches and power show",
        "facts about people in general": "what such data tell of anybody, in the data or not",
    }


def deployment(study: StudyRecord, said: Fields) -> tuple[Record, list[str]]:
    """The registry's entry, valid against its schema, and the names of questions that nobody answered."""
    price, unit = study.price, study.price.unit

    def told(*names: str) -> str:
        return "\n".join(f"- {QUESTIONS[name]}: {said.get(name, _UNSAID)}" for name in names)

    name = str(said.get("name") or study.formula or study.table or "a private run")
    unprotected = "\n".join(f"- {what}: {value}" for what, value in not_protected(study).items())
    stages = ", ".join(str(stage["name"]) for stage in study.stages)
    books = (
        "no ledger counts it"
        if study.ledger is None
        else (
            f"one filter (GDP) for all releases of {study.ledger['dataset']!r}: {study.ledger['cost']} of "
            f"{study.ledger['budget']}, {study.ledger['left']} left"
        )
    )
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
            + "; ".join(f"{column} {domain}" for column, domain in study.rows.items()),
            "unprotected_quantities": unprotected,
        },
        "privacy_loss": {
            "privacy_unit": "One row" if unit is None else f"One person ({unit.name})",
            "privacy_unit_details": f"{study.adjacency}: {whom(check_adjacency(study.adjacency), unit)}.",
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


def deployment_yaml(entry: Fields) -> str:
    """The text of the registry's file."""
    import yaml

    return str(yaml.safe_dump(dict(entry), sort_keys=False, allow_unicode=True, width=100))
