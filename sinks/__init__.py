"""Targets that epochs are applied to: the protocol, its implementations and the Parquet writer."""
