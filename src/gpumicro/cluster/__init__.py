"""Judging a machine and a cluster from result files: scaling, storage, cost, fleets, launching. One file a command."""
