"""Clipped gradients of the data term."""
