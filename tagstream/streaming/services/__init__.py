"""The table services of the stream: compaction, clustering, cleaning and archiving, between or during batches."""
