"""The metadata table written: made, told of each action of the data, rolled back, compacted and cleaned."""
