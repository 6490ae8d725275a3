"""What cuDNN says of its engines, for people: one release, or what changed between several."""
