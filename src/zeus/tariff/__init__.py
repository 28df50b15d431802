"""What a kilowatt-hour costs, in money and in CO2: a number, hourly values of a file, a function, or an online source.

rates       a rate at an hour, and the footprint of energy that is spread over hours (pure)
settings    rates as users write them, also in files of hourly values, and those of the environment
online      the one source that asks the network, and only if its URL is given
text        energy, money and carbon for people (pure)
"""

from __future__ import annotations

from zeus.tariff.rates import Footprint, HourlyRate, Prices, Rate
from zeus.tariff.settings import prices, read_rate

__all__ = ["Footprint", "HourlyRate", "Prices", "Rate", "prices", "read_rate"]
