"""`tideline` with a decoder that some records crash or hang (`tests.poison`), in this process and in Spark's tasks.

The memory of this process and of each child is limited, so that a decoder never exhausts the machine.
"""

from __future__ import annotations

import resource

import pyarrow as pa

import ingest.driver.epoch
import ingest.transform.pipeline
from ingest.cli.main import main
from ingest.execution.isolated import IsolatedDecoder
from ingest.sources.base import Decoder
from ingest.sources.files.source import FilesSource
from tests.poison import SHORT, PoisonedDecoder

MOST_BYTES = 12 << 30

plain = FilesSource.decoder


def poisoned(self: FilesSource, schema: pa.Schema, *, lineage: bool) -> Decoder:
    return PoisonedDecoder(plain(self, schema, lineage=lineage))


def isolated(decoder: Decoder) -> IsolatedDecoder:
    return IsolatedDecoder(decoder, SHORT)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))
    FilesSource.decoder = poisoned  # type: ignore[method-assign]
    for module in (ingest.driver.epoch, ingest.transform.pipeline):
        vars(module)["IsolatedDecoder"] = isolated
    main()
