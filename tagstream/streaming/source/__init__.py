"""Kafka or JSON files to decoded records with their positions."""
