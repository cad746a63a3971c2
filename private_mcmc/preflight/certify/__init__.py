"""Upper bounds on what an exact posterior draw reveals."""
