"""Fitting of conversations into a model's context: counts, cuts and notices.

See: docs/models.md#conversations.
"""
