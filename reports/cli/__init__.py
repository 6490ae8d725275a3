"""The commands that read files and write reports."""
