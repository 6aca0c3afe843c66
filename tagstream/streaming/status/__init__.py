"""A running job that one can look at: status page, JSON, health and metrics on one port."""
