"""Buying a machine against renting one: what an hour of each costs, and when the one overtakes the other.

Plain sums, no discounting and no resale value. The cloud is paid for hours that are used; a machine of one's own costs
its price and its upkeep whether it is used or not, and electricity by what it draws.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .uncertain import Spread, Uncertain, as_pue, at_least_zero, exactly, positive, spread, within

HOURS_A_YEAR = 365.0 * 24


@dataclass(frozen=True, slots=True)
class Ownership:
    """What owning takes. Dollars, years, watts of the whole machine, dollars for a kWh; PUE is what the site draws
    over what the machine draws (The Green Grid), at least 1."""

    capex_usd: Uncertain
    opex_usd_per_year: Uncertain
    lifetime_years: Uncertain
    power_w: Uncertain  # under load
    idle_power_w: Uncertain
    pue: Uncertain
    usd_per_kwh: Uncertain
    utilisation: Uncertain  # the share of all hours in which it works

    def __post_init__(self) -> None:
        positive(self.capex_usd, "capex")
        positive(self.lifetime_years, "lifetime")
        at_least_zero(self.opex_usd_per_year, "opex")
        at_least_zero(self.power_w, "power")
        at_least_zero(self.idle_power_w, "idle power")
        at_least_zero(self.usd_per_kwh, "the price of a kWh")
        as_pue(self.pue)
        within(self.utilisation, "utilisation", 0.0, 1.0)

    def inputs(self) -> dict[str, Uncertain]:
        """By the names that the formulas below take."""
        return {
            "capex": self.capex_usd, "opex": self.opex_usd_per_year, "lifetime": self.lifetime_years,
            "power": self.power_w, "idle": self.idle_power_w, "pue": self.pue, "kwh": self.usd_per_kwh,
            "utilisation": self.utilisation,
        }  # fmt: skip


def usd_per_used_hour(
    capex: float, opex: float, lifetime: float, power: float, idle: float, pue: float, kwh: float, utilisation: float
) -> float:
    """(capex / lifetime + opex) / (8760 u) + k PUE (P u + P_idle (1 - u)) / u, with P in kW."""
    electricity = kwh * pue * (power * utilisation + idle * (1 - utilisation)) / 1000
    return ((capex / lifetime + opex) / HOURS_A_YEAR + electricity) / utilisation


def break_even_utilisation(
    capex: float, opex: float, lifetime: float, power: float, idle: float, pue: float, kwh: float, cloud: float
) -> float:
    """The share of all hours from which on owning is cheaper: where the two costs of a year are equal,

        u = ((capex / lifetime + opex) / 8760 + k PUE P_idle) / (cloud - k PUE (P - P_idle)).

    Above 1, or infinite where electricity alone costs more than the cloud: owning is never cheaper.
    """
    fixed = (capex / lifetime + opex) / HOURS_A_YEAR + kwh * pue * idle / 1000
    saved = cloud - kwh * pue * (power - idle) / 1000
    return fixed / saved if saved > 0 else math.inf


def payback_years(
    capex: float, opex: float, power: float, idle: float, pue: float, kwh: float, utilisation: float, cloud: float
) -> float:
    """Years until what the cloud would have cost exceeds what was paid: capex / (cloud's year - own year without
    capex). Infinite where it never does."""
    electricity = kwh * pue * (power * utilisation + idle * (1 - utilisation)) / 1000 * HOURS_A_YEAR
    saved = cloud * utilisation * HOURS_A_YEAR - opex - electricity
    return capex / saved if saved > 0 else math.inf


@dataclass(frozen=True, slots=True)
class BreakEven:
    """Dollars for an hour of use; a share of all hours; years. "model" throughout."""

    cloud_usd_per_hour: Uncertain
    own_usd_per_used_hour: Spread
    from_utilisation: Spread
    payback_years: Spread

    @property
    def verdict(self) -> str:
        """ "own", "cloud", or "open" where the bounds allow either."""
        low, high = self.own_usd_per_used_hour.low, self.own_usd_per_used_hour.high
        if high < self.cloud_usd_per_hour.low:
            return "own"
        return "cloud" if low > self.cloud_usd_per_hour.high else "open"


def break_even(own: Ownership, cloud_usd_per_hour: float | Uncertain) -> BreakEven:
    """Own against cloud, for the same machine. Raises UsageError for a price that is not above zero."""
    cloud = cloud_usd_per_hour if isinstance(cloud_usd_per_hour, Uncertain) else exactly(cloud_usd_per_hour)
    positive(cloud, "the cloud's price")
    inputs = own.inputs()
    without = {name: known for name, known in inputs.items() if name != "utilisation"}
    paid = {name: known for name, known in inputs.items() if name != "lifetime"}
    return BreakEven(
        cloud, spread(usd_per_used_hour, inputs), spread(break_even_utilisation, without | {"cloud": cloud}),
        spread(payback_years, paid | {"cloud": cloud}),
    )  # fmt: skip
