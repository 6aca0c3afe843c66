"""The timeline of a table: instants, commit metadata, heartbeats, the writer lease."""
