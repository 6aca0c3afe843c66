"""File groups: names, slices, base files, log files and their blocks."""
