"""Ready NumPyro models: each with its row domain, what preflight says of it, and numbers that say so."""

from tests.zoo.bounded import ENTRIES as _BOUNDED
from tests.zoo.categories import ENTRIES as _CATEGORIES
from tests.zoo.counts import ENTRIES as _COUNTS
from tests.zoo.entry import Entry as Entry
from tests.zoo.entry import Pair as Pair
from tests.zoo.grouped import ENTRIES as _GROUPED
from tests.zoo.linear import ENTRIES as _LINEAR
from tests.zoo.logistic import ENTRIES as _LOGISTIC
from tests.zoo.positive import ENTRIES as _POSITIVE
from tests.zoo.structured import ENTRIES as _STRUCTURED

ZOO = (*_LOGISTIC, *_LINEAR, *_COUNTS, *_CATEGORIES, *_POSITIVE, *_BOUNDED, *_GROUPED, *_STRUCTURED)
