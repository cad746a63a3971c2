"""One thin file for each paper: its claims, beside our numbers, from public functions."""
