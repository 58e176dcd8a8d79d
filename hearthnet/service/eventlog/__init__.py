"""The community's event log at one home: its topics, kept, published and exchanged."""
