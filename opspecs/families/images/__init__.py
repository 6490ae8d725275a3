"""Ops on images and other grids: windows, borders, and points between the elements."""
