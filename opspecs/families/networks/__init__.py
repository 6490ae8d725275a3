"""Layers and losses that are neither windows nor lookups."""
