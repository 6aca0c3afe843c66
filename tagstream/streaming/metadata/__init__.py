"""The metadata table beside the stream: made, kept in step with every batch, dropped."""
