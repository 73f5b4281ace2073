"""The protocol of an epoch: its steps, the evidence that storage holds of it, and recovery."""
