"""Posterior expectations with noise: declared, priced, released."""
