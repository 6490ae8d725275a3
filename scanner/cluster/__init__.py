"""A scan on the machines of a Ray cluster: shards as tasks, their run files as they grow, and one file in the end."""
