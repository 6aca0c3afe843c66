"""Inputs of measurements: events, tables, Kafka."""
