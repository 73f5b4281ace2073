"""`tideline check-store`: tests the guarantees that Tideline needs of a store, below a scratch prefix."""
