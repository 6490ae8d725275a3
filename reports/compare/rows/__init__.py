"""One row in two runs: whether they can be compared, and what became of it."""
