"""What one row can be: public facts of its columns, enforced by a silent map."""

from private_mcmc.domains.columns import Arrow, Parquet
from private_mcmc.domains.domain import Binary, Categories, Counts, Domain
from private_mcmc.domains.persons import Person
from private_mcmc.domains.real import Ball, Box, Ratio, Real
from private_mcmc.domains.rows import Rows, domain_from_dict

__all__ = [
    "Arrow",
    "Ball",
    "Binary",
    "Box",
    "Categories",
    "Counts",
    "Domain",
    "Parquet",
    "Person",
    "Ratio",
    "Real",
    "Rows",
    "domain_from_dict",
]
