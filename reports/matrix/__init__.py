"""MATRIX: run files as rows of ops and cells of modes, and what is said of them in words."""
