"""The writers that are compared: each runs in processes of its own, and says in JSON lines what it did."""
