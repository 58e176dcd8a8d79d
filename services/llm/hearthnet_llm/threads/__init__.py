"""Transcripts kept for whoever sends only what is new.

See: docs/models.md#conversations.
"""
