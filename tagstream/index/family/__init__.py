"""The indexes that look keys up in the table, and the registry that makes one by its type."""
