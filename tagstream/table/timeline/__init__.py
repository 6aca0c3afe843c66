"""What was done to a table and when: instants, commit metadata, heartbeats, the writer lease."""
