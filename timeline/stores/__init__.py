"""Object stores: the interface, its adapters, and the probe of their guarantees."""
