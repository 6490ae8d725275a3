"""Ops that read, write or add where an index says."""
