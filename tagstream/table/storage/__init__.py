"""The one door to files: a table's and a checkpoint's, on every kind of store."""
