"""Measurement: energy windows, and power and temperature over time."""

from zeus.monitor.energy import Source
from zeus.monitor.measurement import Measurement
from zeus.monitor.timeline import PowerDomain, PowerMonitor, TemperatureMonitor
from zeus.monitor.window import Window, ZeusMonitor

__all__ = ["Measurement", "PowerDomain", "PowerMonitor", "Source", "TemperatureMonitor", "Window", "ZeusMonitor"]
