"""Drills: a real job on real files, a fault, a restart, and the table compared with an oracle by another reader."""
