"""Collectives between ranks: operations, sizes, the timed loop over MPI, sweeps of sizes and what a sweep means."""
