"""Execution of an epoch's tasks: in this process, in a child process, or on an engine."""
