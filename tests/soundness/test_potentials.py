"""For every model of the grammar that is read, our potential is NumPyro's, row by row."""

from collections.abc import Sequence

import jax
import pytest

from tests.soundness.across import ACROSS
from tests.soundness.fuzz import PART, by_xla, fuzz
from tests.soundness.grammar import PRODUCTIONS, write

# Every production but, of models whose rows depend on one another, most of which are refused, one in five.
DAILY = PRODUCTIONS - set(ACROSS) | set(list(ACROSS)[::5])


def cover(wanted: frozenset[str], seeds: Sequence[int]) -> list[int]:
    """Few seeds whose models together take all of ``wanted``: each in turn takes most of what is left."""
    taken, chosen, left = {seed: set(write(seed).productions) for seed in seeds}, [], set(wanted)
    while left:
        best = max(taken, key=lambda seed: (len(taken[seed] & left), -seed))
        left -= taken.pop(best)
        chosen.append(best)
    return chosen


def test_the_grammar_is_rich_and_its_seeds_go_through_all_of_it():
    taken = {name for seed in range(1000) for name in write(seed).productions}
    assert len(PRODUCTIONS) >= 290 and taken == PRODUCTIONS
    assert len(DAILY) >= 220


def test_a_seed_gives_the_same_model_again():
    for seed in (0, 17, 4711):
        assert write(seed) == write(seed) != write(seed + 1)


@pytest.mark.some(1)
@pytest.mark.parametrize("part", range(16))
def test_every_model_that_is_read_is_the_one_numpyro_runs(part):
    """In parts, which several processes share."""
    check(cover(DAILY, range(1000))[part::16])


@pytest.mark.long
@pytest.mark.parametrize("start", range(0, 1_000, PART))
def test_each_of_a_thousand_models_that_is_read_is_the_one_numpyro_runs(start):
    """As many as take every production; ``python -m tests.soundness.fuzz`` reads others."""
    check(range(start, start + PART), compiled=by_xla(start))
    jax.clear_caches()


def check(seeds: Sequence[int], *, compiled: bool = False) -> None:
    tally = fuzz(seeds, compiled=compiled)
    assert not tally.wrong, "\n\n".join(tally.wrong.values())
    # A fuzzer whose models are refused says nothing.
    assert tally.share_read >= 0.5, tally.refused
