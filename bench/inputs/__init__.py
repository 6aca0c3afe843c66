"""What measurements are fed with: events, tables, Kafka."""
