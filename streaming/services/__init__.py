"""The table services beside the stream: compaction, cleaning and archiving between two batches, or beside them."""
