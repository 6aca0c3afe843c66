"""What is looked at before a run changes anything: Java, source, table, checkpoint, schema."""
