"""The replicated event log of a community: entries and chains of one topic. Pure."""
