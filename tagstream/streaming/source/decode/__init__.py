"""Raw bytes to key columns and to rows: strict where a digit could be lost, lenient where nothing can be."""
