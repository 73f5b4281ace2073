"""A query over an epoch's decoded rows; Spark or the target's writer writes its result."""
