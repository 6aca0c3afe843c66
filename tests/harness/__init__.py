"""Tests of the tests: broker, producer, generator, process control."""
