"""What draws power, behind one protocol; the only place that knows milliwatts."""
