"""Write rows into file groups, and make the commit that shows them to readers."""
