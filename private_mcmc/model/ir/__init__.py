"""A traced program as equations, and what is proved of it: affinity, intervals, smoothness."""
