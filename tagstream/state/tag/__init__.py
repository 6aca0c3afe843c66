"""The decision: insert, update, move, delete or late."""
