"""What is told of calls to those who watch: entries, and OpenTelemetry where it is set up."""
