"""What to run: declarative op specs and their input generators. Needs no torch until a worker draws inputs."""
