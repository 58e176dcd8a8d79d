"""Models that can be called, their probing and choice."""
