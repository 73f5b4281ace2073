"""The past of a timeline, for people: epochs, their entries, tables and HTML."""
