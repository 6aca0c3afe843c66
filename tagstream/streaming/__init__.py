"""The streaming job: options, source, decode, stateful tag, sink, progress."""
