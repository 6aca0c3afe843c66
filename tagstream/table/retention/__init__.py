"""What others still need of a table: files that must stay, actions that must stay on the timeline; pure functions."""
