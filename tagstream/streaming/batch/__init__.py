"""What a batch is: its offsets, its record in the commit, and what a run works with."""
