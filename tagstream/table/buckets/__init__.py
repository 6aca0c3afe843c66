"""The buckets of a table with a bucket index: consistent hashing, its resizes, and rules by partition."""
