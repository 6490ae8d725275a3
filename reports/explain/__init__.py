"""All that is known of one op: what lists say, runs measured and builds let expect, and what to do."""
