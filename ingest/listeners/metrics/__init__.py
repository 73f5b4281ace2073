"""Metrics of a run for Prometheus: `JobMetrics` listens, `serve` answers scrapes."""
