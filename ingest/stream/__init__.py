"""A Spark Structured Streaming query through Tideline's protocol: each micro-batch is one epoch.

::

    from ingest.stream import starting_offsets, stream

    query = stream(df, "job.yaml").option("checkpointLocation", "s3a://lake/_checkpoints/events").start()

    start     lease ─► recover ─► the query runs ─► … ─► it has ended: lease released
    batch     checkpoint says from where to where ─► judge ─┬ ingest: run_epoch, as any other job
                                                            ├ skip:   it is committed already
                                                            └ refuse: the query fails, nothing was written

Epochs are keyed by the batch's source offsets, never by its id, and the timeline alone says what is
committed: the checkpoint can be lost without a row being written twice or left out.
"""

from ingest.stream.query import IngestQuery, StreamIngest, starting_offsets, stream

__all__ = ["IngestQuery", "StreamIngest", "starting_offsets", "stream"]
