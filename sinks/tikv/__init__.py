"""TiKV as a target: rows and the epoch's marker in one distributed Percolator transaction."""
