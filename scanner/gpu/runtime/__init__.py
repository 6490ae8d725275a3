"""What a scanned process has in place of NVIDIA's libraries: the runtime in C, and stand-ins of the others."""
