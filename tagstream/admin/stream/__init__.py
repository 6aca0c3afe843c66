"""Commands on a stream: how its runs have ended, and where it is."""
