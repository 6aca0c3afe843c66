"""The flights demo: real flights as a change stream, and the answer computed from the data alone."""
