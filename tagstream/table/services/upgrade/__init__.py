"""A table brought from one table version to another: 6, 8 and 9."""
