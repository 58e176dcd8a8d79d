"""Documents on their way into a corpus."""
