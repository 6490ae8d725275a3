"""VERDICTS: what observations show, derived whenever a file is read."""
