"""Collectives between ranks: operations, sizes, the timed loop over MPI, and what it makes of a result."""
