"""The formats of change streams, each one decoder behind one interface (``streaming.source.decode.events``)."""
