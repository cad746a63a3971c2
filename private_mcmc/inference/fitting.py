"""``fit``: from a table, a schema and a formula to a study, in one call."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

from private_mcmc.data.schema import Schema
from private_mcmc.dossier.folder import Study
from private_mcmc.errors import DeclarationError, arguments_checked, warn_of_what_was_paid
from private_mcmc.inference.bookkeeping import Bookkeeping
from private_mcmc.inference.fit_plan import plan_fit
from private_mcmc.inference.question import SHARE, question
from private_mcmc.planning.frontier import MaxError
from private_mcmc.records import Model
from private_mcmc.release import Ledger
from private_mcmc.target import Adjacency, Guarantee


@arguments_checked
def fit(
    table: object,
    schema: Schema | str | Path,
    formula: str | None = None,
    *,
    epsilon: float,
    delta: float | None = None,
    adjacency: Adjacency = "replace_one",
    family: str = "bernoulli",
    priors: Sequence[str] = (),
    model: Model | None = None,
    guarantee: Guarantee = "run",
    max_error: MaxError | None = None,
    bounds_share: float = SHARE,
    n: int | None = None,
    public_rows: object = None,
    ledger: Ledger | None = None,
    dataset: str | None = None,
    purpose: str = "",
    progress_bar: bool = True,
) -> Study:
    """Plan, run and release: ``fit("people.csv", schema, "death ~ age + sex", epsilon=1.0)``.

    **Guarantee**: what ``Study.statement`` says of the release, for the adjacency. ``schema``, ``formula``,
    ``priors`` and every option are public and were not chosen by looking at the table.
    **Cost**: (ε, δ), once. What is computed from the study is free; another fit is charged again.

    Args:
        table: path of a CSV, Parquet, Arrow, Stata, SPSS or SAS file, a data frame, or a dict of columns.
        schema: what its cells may be, or the path of its file.
        formula: such as ``"death ~ age + log(kappa) + (1 | region)"``.
        epsilon: of the target.
        delta: of the target; a power of ten of at most ``1e-6`` and ``1/(10 n)`` if left out.
        adjacency: of the target.
        family: such as ``"bernoulli"``, ``"poisson"`` or ``"gaussian"``.
        priors: such as ``"age ~ normal(0, 0.1)"``, on the user's scale.
        model: a NumPyro model in place of a formula; its arguments are fields of the schema.
        guarantee: what meets the target: the run alone, or the posterior as well.
        max_error: refuse a larger predicted error of posterior means, in posterior sds; or of coefficients
            by name in their own units, as ``{"age": 0.01}``.
        bounds_share: of the squared budget, for fields with ``bounds: private``, all together.
        n: public bound on the number of rows, where the adjacency hides it; the number of persons who may
            have several rows, some of them perhaps none.
        public_rows: a table like ``table`` that is public and shapes the plan: see :func:`plan`.
        ledger: charged before the run.
        dataset: the ledger's name for the table.
        purpose: the owner's words for the ledger's history.
        progress_bar: show what the plan tries and steps done.

    Raises:
        DeclarationError: for declarations that do not fit one another.
        DataSchemaError: for a table that does not fit its schema; fields are named, nothing else.
        NotPrivate: for a predicted error above ``max_error``.
        BudgetExceeded: if the ledger has too little left.

    Example:
        >>> schema = pmc.Schema.from_dict({"fields": [
        ...     {"name": "age", "type": "number", "constraints": {"minimum": "0", "maximum": "120"}},
        ...     {"name": "died", "type": "boolean"},
        ... ]})
        >>> rng = np.random.default_rng(0)
        >>> table = {"age": rng.uniform(20, 90, 400), "died": rng.random(400) < 0.3}
        >>> books = pmc.Ledger.create("books.db")
        >>> _ = books.declare("people", pmc.Target(epsilon=5.0, delta=1e-6))
        >>> study = pmc.fit(
        ...     table, schema, "died ~ age", epsilon=3.0, ledger=books, dataset="people", progress_bar=False
        ... )
        >>> [coefficient.name for coefficient in study.answers().summary()]
        ['Intercept', 'age']
    """
    asked = question(_schema_of(schema), formula, family=family, priors=priors, model=model)
    Bookkeeping(ledger, dataset)  # refuses one without the other
    planned = plan_fit(
        table,
        asked,
        epsilon=epsilon,
        delta=delta,
        adjacency=adjacency,
        n=n,
        guarantee=guarantee,
        max_error=max_error,
        bounds_share=bounds_share,
        public_rows=public_rows,
        progress_bar=progress_bar,
    )
    said = planned.warnings(ledger)
    for words in said:
        warnings.warn(words, stacklevel=2)
    study = planned.run(ledger=ledger, dataset=dataset, purpose=purpose, progress_bar=progress_bar)
    for words in study.warnings[len(said) :]:
        warn_of_what_was_paid(words)
    return study


def _schema_of(given: object) -> Schema:
    """A schema or the path of its file; raises ``DeclarationError`` for anything else."""
    if isinstance(given, Schema):
        return given
    if isinstance(given, Path) or (isinstance(given, str) and "~" not in given):
        return Schema.load(given)
    raise DeclarationError(
        f"fit(table, schema, formula, epsilon=…): as schema a {type(given).__name__} was given. Declare what "
        "the table's cells may be: `private-mcmc init` writes schema.yaml, pmc.Schema.load reads it."
    )
