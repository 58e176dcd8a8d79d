"""Transcripts kept for callers that send only new messages.

See: docs/models.md#conversations.
"""
