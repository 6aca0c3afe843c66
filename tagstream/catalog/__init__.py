"""Tables registered in a catalogue: Hive Metastore and AWS Glue."""
