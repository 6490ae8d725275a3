"""Engines of cuDNN and their numerical notes, read through its backend API, with no GPU if none is there."""
