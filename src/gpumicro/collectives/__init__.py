"""Collectives over ranks: their sweeps of sizes, and what a sweep means."""
