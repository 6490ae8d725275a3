"""OBSERVATIONS: the records of run files and traces, and the files that hold them."""
