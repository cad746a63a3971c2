"""Real data sets from installed packages, with public bounds of every column and an ordinary model."""

from collections.abc import Callable

from benchmarks.datasets.adult import adult
from benchmarks.datasets.affairs import affairs
from benchmarks.datasets.fertility import fertility, weeks_worked
from benchmarks.datasets.health_insurance import any_visit, visits
from benchmarks.datasets.mortgages import mortgages
from benchmarks.datasets.record import Column as Column
from benchmarks.datasets.record import Dataset as Dataset
from benchmarks.datasets.synthetic import rare as rare
from benchmarks.datasets.synthetic import synthetic as synthetic

LOADERS: dict[str, Callable[[], Dataset]] = {
    "adult": adult,
    "fertility": fertility,
    "mortgages": mortgages,
    "any_visit": any_visit,
    "affairs": affairs,
    "visits": visits,
    "weeks_worked": weeks_worked,
    "rare": rare,
    "made_up": synthetic,
}
