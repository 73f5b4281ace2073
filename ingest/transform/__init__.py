"""A query over an epoch's decoded rows, and its result as files that Spark writes."""
