"""Load on every capability that reads: how many callers it bears, and what they are told."""
