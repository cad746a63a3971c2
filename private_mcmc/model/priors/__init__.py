"""Priors: what is proved of their potential on the unconstrained space."""
