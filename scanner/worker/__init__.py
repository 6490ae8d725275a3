"""What runs inside the scanned interpreter: the standard library, torch, op specs and nothing else."""
