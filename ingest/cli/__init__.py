"""The command line: one module for each group of commands, and its output and exit codes."""
