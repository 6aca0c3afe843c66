"""Commands on an index: look into it, verify it, carry it over."""
