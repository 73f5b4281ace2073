"""Sources of records: the protocol and its implementations."""
