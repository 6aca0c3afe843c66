"""The jars that Spark is given: which they are, and where they come from without Maven."""
