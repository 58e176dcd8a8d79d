"""How a service is shared with other homes: its places, its terms."""
