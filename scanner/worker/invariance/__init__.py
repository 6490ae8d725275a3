"""Whether a case's bits change with the threads, the batch or the memory layout."""
