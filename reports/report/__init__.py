"""The report of run files: the matrix in every format, with what lies behind it."""
