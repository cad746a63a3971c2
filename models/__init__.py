"""Ready NumPyro models: each with its row domain, what preflight says of it, and numbers that say so."""

from private_mcmc.models.bounded import ENTRIES as _BOUNDED
from private_mcmc.models.categories import ENTRIES as _CATEGORIES
from private_mcmc.models.counts import ENTRIES as _COUNTS
from private_mcmc.models.entry import Entry as Entry
from private_mcmc.models.entry import Pair as Pair
from private_mcmc.models.grouped import ENTRIES as _GROUPED
from private_mcmc.models.linear import ENTRIES as _LINEAR
from private_mcmc.models.logistic import ENTRIES as _LOGISTIC
from private_mcmc.models.positive import ENTRIES as _POSITIVE
from private_mcmc.models.refused import ENTRIES as _REFUSED
from private_mcmc.models.structured import ENTRIES as _STRUCTURED

_READ = (*_LOGISTIC, *_LINEAR, *_COUNTS, *_CATEGORIES, *_POSITIVE, *_BOUNDED, *_GROUPED, *_STRUCTURED)
ZOO = (*_READ, *_REFUSED)
