"""Tests, run by pytest."""
