"""Execution on Spark: the session, its JVM and Python workers, and remote executors."""
