"""Run it: plan, worker processes, repetition, bitwise comparison, the run file."""
