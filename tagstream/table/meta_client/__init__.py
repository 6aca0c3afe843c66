"""A table as it is opened: properties, configuration, the handle on all of it."""
