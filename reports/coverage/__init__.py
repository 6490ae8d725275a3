"""Which overloads of PyTorch the rows of runs reach."""
