"""Packages outside of the tree that bring a sink and a store, and what they can do."""
