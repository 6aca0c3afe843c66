"""Record keys, partition paths and the hashes taken of them."""
