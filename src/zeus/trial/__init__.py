"""One trial as a pure state machine, which every way of running a trial uses."""
