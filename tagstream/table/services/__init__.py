"""What keeps a table in order: rollback, late files removed, a check of the whole."""
