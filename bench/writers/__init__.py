"""The writers of a comparison. Each runs in separate processes and reports its events as JSON lines."""
