"""Quantities with units: parsing, formatting and error messages."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from services.schema.units import Bytes, Duration, Quantity, Rate, Throughput

UNITS = (Rate, Duration, Bytes, Throughput)
positive = st.floats(min_value=1e-12, max_value=1e30)
allowed_in_scenarios = st.floats(min_value=1e-12, max_value=1e8)
every_unit = pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.__name__)


@every_unit
@given(value=positive)
def test_a_quantity_is_unchanged_after_formatting_and_parsing(unit: type[Quantity], value: float) -> None:
    """resolved.yaml must describe exactly the run that took place."""
    assert unit(str(unit(value))) == value


@every_unit
@given(value=allowed_in_scenarios)
def test_a_quantity_round_trips_through_json_and_matches_the_schema(unit: type[Quantity], value: float) -> None:
    """An editor must accept the values that Ensayo itself writes."""
    adapter: TypeAdapter[Quantity] = TypeAdapter(unit)

    dumped = adapter.dump_python(unit(value), mode="json")

    assert re.search(adapter.json_schema()["pattern"], dumped)
    assert adapter.validate_python(dumped) == value


@every_unit
@given(value=st.one_of(st.integers(), st.floats(allow_nan=False)))
@example(value=10**400)  # more than any float
def test_a_number_without_a_unit_is_refused_with_an_example(unit: type[Quantity], value: float) -> None:
    """A number without a unit is ambiguous."""
    with pytest.raises(ValidationError, match=f"has no unit.*{unit.example}"):
        TypeAdapter(unit).validate_python(value)


@every_unit
@pytest.mark.parametrize("text", ["", "5", "5 parsecs", "-5ms", "0s", "0bit", "0B", "0/s", "5\nms"])
def test_the_error_of_an_invalid_quantity_lists_the_units(unit: type[Quantity], text: str) -> None:
    """Zero and negative quantities and unknown units are invalid."""
    with pytest.raises(ValueError, match=f"above zero with a unit .*{next(iter(unit.units))}"):
        unit(text)


@every_unit
def test_the_error_of_an_infinite_quantity_states_the_maximum(unit: type[Quantity]) -> None:
    """1e300GiB is above the largest float; the message asked for a number above zero."""
    with pytest.raises(ValueError, match=f"is too large; at most {unit.largest} is allowed"):
        unit(f"1e999{next(iter(unit.units))}")


@every_unit
def test_a_scenario_accepts_the_largest_quantity_and_no_larger_one(unit: type[Quantity]) -> None:
    """1e300h is a finite number, but times computed from it are infinite."""
    adapter: TypeAdapter[Quantity] = TypeAdapter(unit)

    assert adapter.validate_python(unit.largest) == unit(unit.largest)
    with pytest.raises(ValidationError, match=f"at most {unit.largest}"):
        adapter.validate_python(str(unit(2 * unit(unit.largest))))


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
def test_unit_prefixes_have_their_usual_meaning(quantity: Quantity, value: float) -> None:
    """Prefixes are decimal; only those with an i, such as MiB, are binary."""
    assert quantity == pytest.approx(value)


@pytest.mark.parametrize("text", ["100mbit", "2.5gbit", "10kbit", "1bit"])
def test_a_rate_is_formatted_as_users_write_it(text: str) -> None:
    """Reports show rates as the scenario declares them."""
    assert str(Rate(text)) == text
