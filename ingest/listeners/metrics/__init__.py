"""What a run measures of itself, for Prometheus: `JobMetrics` listens, `serve` answers scrapes."""
