"""The files of a file group: their names, base files, slices as listed."""
