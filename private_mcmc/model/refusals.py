"""Arguments that do not fit a model, and priors and latents that follow the rows: refused by name."""

from __future__ import annotations

import inspect

from private_mcmc.domains.rows import Rows
from private_mcmc.errors import DeclarationError, DoThisInstead
from private_mcmc.model.ir.program import Kind, Output, Program
from private_mcmc.model.sites import ModelSites
from private_mcmc.records import Model, PublicArguments


def check_arguments(model: Model, rows: Rows, public: PublicArguments, n: int) -> None:
    """The declared columns and public arguments fit the model's signature."""
    if not n >= 1:
        raise DeclarationError(f"n={n}: the number of rows is at least 1.")
    if "theta" in rows.columns or "theta" in public:
        raise DeclarationError("a column or argument may not be called 'theta'; rename it.")
    both = sorted(rows.columns.keys() & public.keys())
    if both:
        raise DeclarationError(f"{both}: both in Rows and in model_args; a name is one or the other.")
    try:
        inspect.signature(model).bind(**dict.fromkeys([*rows.columns, *public]))
    except TypeError as error:
        raise DeclarationError(
            f"the model does not take the columns {sorted(rows.columns)} and the "
            f"model_args {sorted(public)}: {error}."
        ) from error


def refuse_growing_latents(one: ModelSites, many: ModelSites) -> None:
    """No latent is repeated for every row."""
    before = {site.name: site.shape for site in one.latents}
    for site in many.latents:
        if before.get(site.name) != site.shape:
            where = f" (inside plate {site.plates[-1]!r})" if site.plates else ""
            raise DoThisInstead(
                f"site {site.name!r} is a latent whose shape follows the number of rows{where}: each row "
                "would have parameters of its own. If it is data, declare its column in Rows; otherwise "
                "integrate it out or give it a public shape."
            )


def refuse_prior_on_data(program: Program, model_sites: ModelSites) -> None:
    """Supports, transforms and priors read no column: proved from the program."""
    names: dict[Kind, str] = {"value": "support", "jacobian": "support", "prior": "prior"}
    for site in model_sites.latents:
        for kind, what in names.items():
            read = program.reads([program.outputs[Output(kind, site.name)]]) - {"theta"}
            if read:
                raise DoThisInstead(
                    f"the {what} of site {site.name!r} depends on the rows ({', '.join(sorted(read))}): "
                    "data may reach the potential through the rows' own terms only. Use a public constant, "
                    "passed through model_args."
                )


def refuse_prior_on_count(one: Program, many: Program, model_sites: ModelSites) -> None:
    """The prior is the same program for one row and for many."""
    for site in model_sites.latents:
        for kind in ("value", "jacobian", "prior"):
            key = Output(kind, site.name)
            if one.text([one.outputs[key]]) != many.text([many.outputs[key]]):
                raise DoThisInstead(
                    f"the prior of site {site.name!r} depends on the number of rows of the data; "
                    "pass a public number through model_args instead."
                )
