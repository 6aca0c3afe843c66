"""The state index: where each record key is, its stores and snapshots."""
