"""Load the index from an existing table, or catch it up with other writers' commits."""
