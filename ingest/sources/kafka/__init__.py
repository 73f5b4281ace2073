"""Kafka topics as a source: shards are partitions, offsets are Kafka's."""
