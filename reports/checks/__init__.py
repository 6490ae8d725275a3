"""What CI is told of runs and of comparisons: which rows fail a check, as lines, annotations and JUnit XML."""
