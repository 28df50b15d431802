"""One trial as a pure state machine, whoever runs it."""
