"""Where the adjacency hides how many slots are empty, as many people are assumed as were counted."""

import numpy as np
import pytest

from private_mcmc.planning.influence import CELLS, InfluenceCounts, people_counted
from private_mcmc.release import Sums


@pytest.mark.parametrize("adjacency", ["zero_out", "add_remove", "replace_one"])
def test_counts_of_people_are_not_hidden_by_empty_slots(adjacency):
    """A third of the slots are full: noise hides nobody but where all slots count as people."""
    slots, people, cells = 6000, 2000, np.zeros(CELLS)
    cells[10:15] = people / 5

    def hidden(noise_sd):
        counts = Sums(cells[None], noise_sd)
        return InfluenceCounts(counts, slots, people_counted(counts, slots, adjacency)).hidden

    assert hidden(200.0)
    assert hidden(5.0) == (adjacency == "replace_one")
