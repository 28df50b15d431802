"""A saving as a sentence. All of Zeus says it in these words: commands, page, export, last line of a training."""

from __future__ import annotations

from zeus.tariff.rates import PricedSaving
from zeus.tariff.text import grams, joules, money

UNKNOWN = PricedSaving()
SEEN = 2.0  # standard errors from which a difference is told from chance
ROUNDING = 1e-9  # sums of equal numbers differ in their last digits; such a share is no saving
BASES = {"as_it_ran": "as it ran: the default's power limits are not known"}  # the other values are words already


def is_seen(saved: float, error: float, of: float = 0.0) -> bool:
    """Whether a saving, or a loss, is at least two standard errors, and more than a rounding error of the whole.

    >>> is_seen(120.0, 60.0), is_seen(-119.0, 60.0), is_seen(0.0, 0.0), is_seen(1e-8, 0.0, of=1000.0)
    (True, False, False, False)
    """
    return abs(saved) > ROUNDING * of and abs(saved) >= SEEN * error and saved != 0


def saving_sentence(
    energy: tuple[float, float],
    time: tuple[float, float],
    compared: tuple[float, float],
    *,
    basis: str = "",
    worth: PricedSaving = UNKNOWN,
    would: bool = False,
) -> str:
    """What was saved, how sure that is, and what it rests on.

    Args:
        energy: Joules saved (negative if more was used), and their standard error.
        time: Seconds saved, and their standard error.
        compared: Joules and seconds that this is compared with.
        basis: What this rests on, a value of `Basis`. Empty: not said.
        worth: Money and CO2e of the energy saved.
        would: Whether it would have been saved, had anything been changed.

    >>> saving_sentence((1200.0, 60.0), (-3.0, 1.0), (6000.0, 96.0), basis="estimated")
    'saved 20 % ± 1 % energy (1.20 kJ ± 60.0 J, estimated); 3.1 % ± 1.0 % more time'
    >>> saving_sentence((-365.0, 208.0), (1.0, 2.0), (6000.0, 96.0), basis="measured")
    'no difference seen (-365 J ± 208 J, measured)'
    >>> saving_sentence((365.0, 208.0), (48.0, 10.0), (6000.0, 96.0))
    'no difference seen in energy (+365 J ± 208 J); 50 % ± 10 % less time'
    >>> saving_sentence((1200.0, 6.0), (0.0, 1.0), (6000.0, 96.0), worth=PricedSaving(0.42, 0.02, "EUR", 120.0, 6.0))
    'saved 20.0 % ± 0.1 % energy (1.20 kJ ± 6.00 J, 0.42 ± 0.02 EUR, 120 ± 6 gCO2e); no difference seen in time'
    """
    less_energy, less_time = (_differs(saved, whole) for saved, whole in zip((energy, time), compared, strict=True))
    size = joules(abs(energy[0]))
    sign = "" if less_energy or size == joules(0.0) else "-" if energy[0] < 0 else "+"
    parts = [f"{sign}{size} ± {joules(energy[1], of=energy[0])}"]
    if less_energy and worth.money is not None:
        parts.append(money(abs(worth.money), worth.currency, worth.money_error))
    if less_energy and worth.gco2e is not None:
        parts.append(grams(abs(worth.gco2e), worth.gco2e_error))
    inner = ", ".join([*parts, *([BASES.get(basis, basis)] if basis else [])])
    if not less_energy and not less_time:
        return f"no difference seen ({inner})"
    if not less_energy:
        text = f"no difference seen in energy ({inner})"
    elif energy[0] > 0:
        text = f"{'would have ' if would else ''}saved {less_energy} energy ({inner})"
    else:
        text = f"{'would have ' if would else ''}used {less_energy} more energy ({inner})"
    if less_time:
        text += f"; {less_time} {'less' if time[0] > 0 else 'more'} time"
    else:
        text += "; no difference seen in time"
    return text


def _differs(saved: tuple[float, float], compared: float) -> str:
    """The share of a difference with its error; empty if none is seen."""
    if not compared or not is_seen(*saved, of=compared):
        return ""
    share, error = (abs(one) / compared for one in saved)
    places = 0 if share >= 0.0995 and (error >= 0.005 or not error) else 1
    return f"{share:.{places}%} ± {error:.{places}%}".replace("%", " %")
