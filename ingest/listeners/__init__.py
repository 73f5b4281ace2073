"""Listeners of a run that a job file names: metrics and callbacks."""
