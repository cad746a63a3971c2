"""Statements checked: their curves recomputed from their constants, apart from the code that made them."""
