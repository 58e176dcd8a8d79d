"""Copies of corpora between homes: what a home offers of its own, and the copies that it keeps of others."""
