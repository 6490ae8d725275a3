"""PyTorch's own databases of ops and modules as sources of specs."""
