"""What is no longer on the active timeline, in both forms, and one action's files brought from one layout to the other."""
