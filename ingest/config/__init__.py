"""Configuration: a job file's text, its checks, and the sources and sinks that it can name."""
