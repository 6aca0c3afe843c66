"""A folder of JSON lines files that appear and grow: what is new in it, in plans that are kept, and the lines of a plan."""
