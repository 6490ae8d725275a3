"""Benchmarks: scripts that print ratios taken in one process; no part of the test suite."""
