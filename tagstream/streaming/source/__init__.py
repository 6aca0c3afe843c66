"""Records from Kafka, files and DataFrames, with their positions, and the transformations of them."""
