"""An opened table: its properties, its configuration and the table object."""
