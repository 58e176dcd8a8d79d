"""What fits into a model's context: counted, cut by rule, and said.

See: docs/models.md#conversations.
"""
