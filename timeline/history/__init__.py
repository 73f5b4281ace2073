"""History of a timeline: entries, epochs, rows, tables and HTML."""
