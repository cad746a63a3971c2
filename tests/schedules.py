"""Schedules, of which a test says what matters to it."""

from private_mcmc.schedule import Schedule

FIELDS = dict(adjacency="replace_one", num_rows=100, dim=2, step_size=0.01, num_steps=60, clip=1.0)


def schedule(**changes) -> Schedule:
    return Schedule(**(FIELDS | changes))
