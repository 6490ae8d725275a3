"""The device that rows run on, asked in the same way whatever its kind."""
