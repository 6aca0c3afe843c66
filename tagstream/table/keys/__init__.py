"""Record keys, partition paths and their hashes."""
