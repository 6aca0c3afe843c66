"""The figures of the benchmarks, from JSON lines to one HTML page."""
