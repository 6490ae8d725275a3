"""CASES: what a scan will run, under which settings."""
