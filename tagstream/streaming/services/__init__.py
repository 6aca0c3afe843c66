"""The table services of the stream: compaction, clustering, cleaning and archiving, between two batches or beside them."""
