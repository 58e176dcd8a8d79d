"""Writing of community events, and their exchange with other nodes."""
