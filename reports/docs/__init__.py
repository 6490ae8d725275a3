"""The documented lists held against run files, and written again."""
