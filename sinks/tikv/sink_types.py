"""The entry point ``tikv``: chooses the sink by the target's transaction level."""

from __future__ import annotations

from typing import cast

from sinks.base import Sink, SinkContext, TargetOptions
from sinks.tikv.minibatch import MinibatchSink
from sinks.tikv.options import TikvOptions, TransactionLevel
from sinks.tikv.sink import TransactionSink


class TikvTarget:
    """``type: tikv``."""

    Options = cast(type[TargetOptions], TikvOptions)

    @classmethod
    def open(cls, options: TargetOptions, context: SinkContext) -> Sink:
        """Create the sink that a job file's block describes; no I/O.

        Raises:
            ConfigError: prefix, key or another column does not fit the schema.
        """
        assert isinstance(options, TikvOptions)
        if options.transaction is TransactionLevel.MINIBATCH:
            return MinibatchSink.open(options, context)
        return TransactionSink.open(options, context)
