"""One micro-batch into one commit, exactly once."""
