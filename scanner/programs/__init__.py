"""Programs of the user's: start one under observation, in processes of its own, and read what was found."""
