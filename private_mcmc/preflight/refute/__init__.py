"""Proofs that a posterior is not private: a pair of data sets and an event."""
