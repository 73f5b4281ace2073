"""A real job under random faults for minutes: in the end, source = target + quarantine, without orphans.

::

    producer ──▶ Kafka ──▶ tideline run --continuous ──▶ proxy ──▶ S3: two tables, quarantine, timeline
                   ▲             ▲                         ▲        ▲
                   └── strikes ──┴────────────────────── weather ───┘     drawn from one seed

``make soak`` runs it, or ``python -m tests.soak``.
"""
