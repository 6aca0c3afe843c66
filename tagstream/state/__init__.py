"""The key-group store: where every record key lives, kept as streaming state."""
