"""Read what a build of torch says of determinism, without running it: its libraries and its Python files."""
