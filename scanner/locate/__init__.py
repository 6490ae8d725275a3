"""What runs inside a stranger's program and finds the ops that are not reproducible; needs torch and nothing else."""
