"""The version of the project: here, and nowhere else."""

VERSION = "0.1.0"
