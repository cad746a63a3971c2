"""What one row can be: public facts of its columns, enforced by a silent map."""

from private_mcmc.domains.domain import Ball as Ball
from private_mcmc.domains.domain import Binary as Binary
from private_mcmc.domains.domain import Box as Box
from private_mcmc.domains.domain import Categories as Categories
from private_mcmc.domains.domain import Counts as Counts
from private_mcmc.domains.domain import Domain as Domain
from private_mcmc.domains.domain import Real as Real
from private_mcmc.domains.persons import Person as Person
from private_mcmc.domains.rows import Rows as Rows
