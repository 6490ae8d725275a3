"""Which ops of a program are not reproducible: the roots, what is known of them, what to do."""
