"""Langevin runs: cross moduli, the shift bound, minibatches, and the statement of what a run releases."""
