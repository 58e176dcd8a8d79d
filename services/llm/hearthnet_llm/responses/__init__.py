"""The response to a request, and the second attempts that mend it."""
