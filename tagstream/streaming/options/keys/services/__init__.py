"""Keys of the table services that run beside the stream."""
