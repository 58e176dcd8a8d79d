"""What fits into a model's context: counted, cut by rule, and said (tools.md, "Conversations")."""
