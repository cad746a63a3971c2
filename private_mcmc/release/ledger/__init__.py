"""The ledger: what every release on a data set has cost, and whether the next one may happen."""
