"""Records decoded into rows: formats, schemas, types."""
