"""Quantities: whatever is written can be read, and means the same."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from services.schema.units import Bytes, Duration, Quantity, Rate, Throughput

UNITS = (Rate, Duration, Bytes, Throughput)
positive = st.floats(min_value=1e-12, max_value=1e30)
every_unit = pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.__name__)


@every_unit
@given(value=positive)
def test_a_written_quantity_reads_back_to_the_same_bits(unit: type[Quantity], value: float) -> None:
    """resolved.yaml must describe exactly the run that was made."""
    assert unit(str(unit(value))) == value


@every_unit
@given(value=positive)
def test_json_round_trips_and_obeys_the_schema(unit: type[Quantity], value: float) -> None:
    """An editor must accept what Ensayo itself writes."""
    adapter: TypeAdapter[Quantity] = TypeAdapter(unit)

    written = adapter.dump_python(unit(value), mode="json")

    assert re.search(adapter.json_schema()["pattern"], written)
    assert adapter.validate_python(written) == value


@every_unit
@given(value=st.one_of(st.integers(), st.floats(allow_nan=False)))
def test_a_bare_number_is_refused_with_the_right_form(unit: type[Quantity], value: float) -> None:
    """A number without a unit means something else to everybody who reads it."""
    with pytest.raises(ValidationError, match=f"has no unit.*{unit.example}"):
        TypeAdapter(unit).validate_python(value)


@every_unit
@pytest.mark.parametrize(
    "text", ["", "5", "5 parsecs", "-5ms", "0s", "0bit", "0B", "0/s", "1e999s", "1e999bit", "5\nms"]
)
def test_what_is_no_positive_quantity_names_the_units(unit: type[Quantity], text: str) -> None:
    """Zero, negative, infinite and foreign quantities would each mean something nobody asked for."""
    with pytest.raises(ValueError, match=f"units are .*{next(iter(unit.units))}"):
        unit(text)


@pytest.mark.parametrize(
    ("quantity", "value"),
    [
        (Rate("10kbit"), 1e4),
        (Rate("2.5gbit"), 2.5e9),
        (Duration("250us"), 250e-6),
        (Duration("1min"), 60),
        (Bytes("512MiB"), 512 * 2**20),
        (Bytes("100MB"), 1e8),
        (Throughput("4000/s"), 4000),
    ],
)
def test_prefixes_mean_what_they_mean_elsewhere(quantity: Quantity, value: float) -> None:
    """Decimal for rates, binary only where it is written with an i."""
    assert quantity == pytest.approx(value)


@pytest.mark.parametrize("text", ["100mbit", "2.5gbit", "10kbit", "1bit"])
def test_the_shortest_form_is_the_one_people_write(text: str) -> None:
    """Reports repeat rates the way that the scenario has them."""
    assert str(Rate(text)) == text
