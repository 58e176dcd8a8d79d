"""What tests of every folder share: waiting, leaving out, a real NATS server, ends of processes."""
