"""A table at rest as one HTML page."""
