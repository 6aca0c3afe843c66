"""A batch: what it is, and the steps that tag its records and write them."""
