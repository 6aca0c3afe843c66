"""Table services beside the stream."""
