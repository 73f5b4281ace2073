"""A real job under random faults for minutes: in the end, source = target + quarantine, and nothing is left over.

::

    producer ──▶ Kafka ──▶ tideline run --continuous ──▶ proxy ──▶ S3: two tables, quarantine, timeline
                   ▲             ▲                         ▲        ▲
                   └── strikes ──┴────────────────────── weather ───┘     drawn from one seed

``make soak`` runs it, or ``python -m tests.soak``.
"""
