"""Golden records: what every kind of statement says, in JSON. ``python -m tests.golden`` rewrites them."""
