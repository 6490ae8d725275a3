"""Ops whose result depends on memory itself: nobody wrote it, or several elements share it."""
