"""Transcripts kept for whoever sends only what is new (tools.md, "Conversations")."""
