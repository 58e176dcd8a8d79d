"""Requests, frames, model profiles and the port that each backend implements."""
