"""A row's inputs as source that needs torch alone, written while they are drawn."""
