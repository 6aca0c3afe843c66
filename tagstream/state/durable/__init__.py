"""The index in the checkpoint: deltas, snapshots, generations, epochs, and what is no longer needed."""
