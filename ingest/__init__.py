"""Jobs: configuration, sources, the epoch loop, recovery and the command line."""
