"""Commands on the quarantine: what is in it, and its records once more."""
