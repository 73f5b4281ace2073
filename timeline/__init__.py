"""The timeline: instants, decisions, leases and the object store they live on. No Spark, no Delta."""
