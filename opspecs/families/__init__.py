"""Op specs, a module for each family of ops."""
