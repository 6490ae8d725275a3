"""A scan as it goes on: its passes, going on with one that was cut short, measuring rows again."""
