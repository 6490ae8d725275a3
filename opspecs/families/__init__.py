"""Op specs: a module for each family of ops, in folders of what they work on."""
