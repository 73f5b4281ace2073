"""What a cluster needs: sums that anyone can follow from the measured figures."""

from __future__ import annotations

from bench import cluster, projection, throughput
from bench.goals import Key
from bench.logs import BYTES_A_ROW, ROWS
from bench.projection import Measures, Stream, needs
from bench.table import OURS

MEASURES = Measures(
    files_mb=100.0,
    kafka_mb=119.0,
    written_share=0.1,
    driver_ms=600.0,
    timeline_mb=4.0,
    log_mb=1.0,
    driver_requests=20.0,
)


def test_an_epoch_a_minute_of_two_thousand_files() -> None:
    found = needs(Stream(3, 60, files=2_000), MEASURES)
    assert found["text in an epoch"] == "180 GB"
    assert found["busy cores, from files"] == "30"
    assert found["cores 70% busy, from files"] == "43"
    assert found["busy cores, from Kafka"] == "26"  # 25.2: none is busy for a part
    assert found["Kafka partitions, 5 MB/s each"] == "600"
    assert found["size of a data file"] == "9 MB"
    assert found["data files an hour"] == "120,000"
    assert found["puts and deletes a second"] == "100"  # 2,000 markers, files and markers' ends, 20 of the driver
    assert found["share of what S3 takes of them for one prefix"] == "2.9%"
    assert found["driver, share of its time"] == "1.0 %"
    assert found["instants a year"] == "525,600"
    assert found["timeline, a year"] == "2.10 TB"
    assert found["files in the table after 30 days"] == "86.4 million"  # 2,000 a minute
    assert found["Delta log without checkpoints, 30 days"] == "0.04 TB"


def test_large_files_are_uploaded_in_parts() -> None:
    found = needs(Stream(5, 300, file_mb=128), MEASURES)
    assert found["size of a data file"] == "128 MB"
    assert found["data files an hour"] == "14,064"  # 150 GB in 1,172 files, twelve times
    # 1,172 files: marker and its end, begin, 8 parts, complete; 20 of the driver
    assert found["puts and deletes a second"] == "47"
    assert found["timeline, a year"] == "0.25 TB"


def test_the_figures_are_those_of_the_tables() -> None:
    found = {
        Key(throughput.TABLE, throughput.FILES, OURS, throughput.PER_CPU): 1e6,
        Key(throughput.TABLE, throughput.KAFKA, OURS, throughput.PER_CPU): 2e6,
        Key(throughput.TABLE, throughput.FILES, OURS, throughput.WRITTEN): ROWS * BYTES_A_ROW / 4e6,
        Key(cluster.TABLE, cluster.ON_S3, OURS, cluster.MS): 500.0,
        Key(cluster.TABLE, cluster.ON_S3, OURS, cluster.TIMELINE): 4.0,
        Key(cluster.TABLE, cluster.ON_S3, OURS, cluster.LOG): 1.0,
        Key(cluster.TABLE, cluster.ON_S3, OURS, cluster.REQUESTS): 16.0,
    }
    assert Measures.of(found) == Measures(320.0, 640.0, 0.25, 500.0, 4.0, 1.0, 16.0)
    assert len(projection.table(found)[0]) == 1 + len(projection.STREAMS)
    del found[Key(cluster.TABLE, cluster.ON_S3, OURS, cluster.REQUESTS)]
    assert projection.table(found) == []
