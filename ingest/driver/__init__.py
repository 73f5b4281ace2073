"""The driver: takes the lease, recovers, plans and runs epochs, and repairs targets."""
