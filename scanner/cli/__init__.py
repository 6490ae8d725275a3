"""The command line: the commands that scan, and the table of all."""
