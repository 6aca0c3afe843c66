"""The index family: every Hudi index behind one interface."""
