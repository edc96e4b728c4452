"""Declared prices and power draws: their texts, and the mean power of a node that computes for a part of the time."""

import pytest

from services.cluster.cluster import Cluster, WorkerGroup, WorkerSpec
from services.cluster.running_costs import HourlyPrice, PowerDraw
from services.schema.units import Power


@pytest.mark.parametrize(
    ("text", "amount", "currency"),
    [("2.5 USD/h", 2.5, "USD"), ("3EUR/h", 3.0, "EUR"), ("0.04 credits/h", 0.04, "credits")],
)
def test_a_price_is_a_number_with_a_currency_per_hour(text: str, amount: float, currency: str) -> None:
    """The currency is a label: Ensayo converts nothing."""
    price = HourlyPrice(text)

    assert (price.amount, price.currency, str(price)) == (amount, currency, text)


@pytest.mark.parametrize(
    "text", ["2.5", "2.5 USD", "USD 2.5/h", "2.5/h", "0 USD/h", "-1 USD/h", "2.5 USD/day", "1e12 USD/h"]
)
def test_other_texts_are_errors_with_an_example(text: str) -> None:
    """A price without a currency or a time has no meaning, and a free node declares no price."""
    with pytest.raises(ValueError, match=r"is not a price per hour; .* such as 2\.5 USD/h"):
        HourlyPrice(text)


@pytest.mark.parametrize(("compute_share", "watts"), [(0.0, 70.0), (0.25, 227.5), (1.0, 700.0)])
def test_mean_power_lies_between_idle_and_busy(compute_share: float, watts: float) -> None:
    """A node that computes for a quarter of the time draws idle power plus a quarter of the difference to busy."""
    assert PowerDraw(idle=Power("70W"), busy=Power("0.7kW")).mean_watts(compute_share) == pytest.approx(watts)


def test_a_group_inherits_price_and_power_that_it_does_not_declare() -> None:
    """Old machines may cost less and draw as much."""
    power = PowerDraw(idle=Power("70W"), busy=Power("700W"))
    worker = WorkerSpec(watts=power, price=HourlyPrice("2.5 USD/h"))
    cluster = Cluster(
        workers=2, worker=worker, groups=(WorkerGroup(name="old", ranks=(1,), price=HourlyPrice("1 USD/h")),)
    )

    assert [(spec.watts, spec.price) for spec in (cluster.worker_spec(0), cluster.worker_spec(1))] == [
        (power, "2.5 USD/h"),
        (power, "1 USD/h"),
    ]
