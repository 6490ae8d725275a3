"""Ops that join or order the elements of a dim."""
