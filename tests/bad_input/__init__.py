"""What nobody should send, made from the contracts, and what every service has to answer to it."""
