"""Delta tables: the sink, the transaction log and checks of a table's files."""
