"""GPUs and CPUs behind one protocol. Only this package works in milliwatts and millijoules."""
