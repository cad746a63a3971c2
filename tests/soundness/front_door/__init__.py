"""Checks of the library through the driver alone: each tells what speaks against it, or nothing.

*Replays* (one driver run, no claim of privacy attacked): a path leaves, once the gradient that NumPyro's own
density has is taken off, exactly the declared noise. *Audits* (many runs on two adjacent data sets): the
lower bounds stay below the claim. A check is made once and tried with many seeds.
"""

from tests.soundness.front_door import audits, persons, plans, replays
from tests.soundness.front_door.setup import Check

CHECKS = (
    Check("replay: linear path", replays.linear_path),
    Check("replay: logistic path", replays.logistic_path),
    Check("replay: grid", replays.states_on_the_grid),
    Check("replay: batches", replays.batches_drawn_anew),
    Check("replay: resumed", replays.resumed_is_the_same_run),
    Check("audit: last state", audits.last_state),
    Check("audit: first row", audits.path_of_the_first_row),
    Check("audit: below the clip", audits.path_of_rows_below_the_clip),
    Check("audit: batches", audits.path_of_batches),
    Check("audit: clipped coordinates", audits.path_of_clipped_coordinates),
    Check("replay: plan's budget", plans.stages_add_up_to_the_budget),
    Check("replay: plan's noise", plans.no_stage_repeats_the_noise_of_another),
    Check("audit: plan's noise", plans.stages_have_noise_of_their_own),
    Check("audit: resumed", audits.path_of_a_resumed_run),
    Check("replay: persons", persons.path_of_persons),
    Check("audit: person", persons.path_of_a_person),
    Check("replay: batches of persons", persons.batches_are_of_persons),
    Check("audit: batches of persons", persons.path_of_batches_of_persons),
)
