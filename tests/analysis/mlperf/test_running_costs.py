"""Accelerator-hours, energy and cost of published results, from declared prices and power draws."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from analysis.mlperf.chapters.running_costs import running_costs_chapter
from analysis.mlperf.prices import AcceleratorPrice, PriceByAccelerator
from analysis.mlperf.reading.results import MlperfResult, MlperfResults
from analysis.mlperf.study import make_mlperf_study
from ensayo import cli
from ensayo.mlperf_prices import read_accelerator_prices
from services.cluster.running_costs import HourlyPrice
from services.schema.errors import UserError
from services.schema.units import Power

RESULTS = MlperfResults(
    (
        MlperfResult(benchmark="bert", submitter="We", system="small", accelerator="NVIDIA H100-SXM5-80GB",
                     accelerator_count=8, minutes=30.0),
        MlperfResult(benchmark="bert", submitter="We", system="large", accelerator="NVIDIA H100-SXM5-80GB",
                     accelerator_count=64, minutes=6.0),
        MlperfResult(benchmark="bert", submitter="They", system="other", accelerator="TPU-v5p",
                     accelerator_count=16, minutes=12.0),
        MlperfResult(benchmark="bert", submitter="They", system="hosts", accelerator="Xeon",
                     accelerator_count=2, minutes=99.0, unit="hosts"),
    ),
    "mine.csv",
)  # fmt: skip


@pytest.mark.parametrize("name", ["H100 SXM", "NVIDIA H100-SXM5-80GB"], ids=["kind", "spelling of the submitter"])
def test_energy_and_cost_are_hours_times_declared_numbers(name: str) -> None:
    """Eight accelerators for half an hour are four accelerator-hours: 2.8 kWh at 700 W, and 10 USD at 2.5 USD/h."""
    prices: PriceByAccelerator = {name: AcceleratorPrice(price=HourlyPrice("2.5 USD/h"), watts=Power("700W"))}
    chapter = running_costs_chapter(make_mlperf_study(RESULTS, prices))
    assert chapter is not None

    rows = chapter.tables[1].data.set_index("system")
    small, other = rows.loc["We small"], rows.loc["They other"]
    assert (small["accelerator_hours"], small["energy_kwh"], small["cost"]) == pytest.approx((4.0, 2.8, 10.0))
    assert (rows.loc["We large", "cost"], other["accelerator_hours"]) == pytest.approx((16.0, 3.2))
    assert other[["energy_kwh", "cost"]].isna().all()
    assert "We hosts" not in rows.index
    assert "Least accelerator-hours: BERT 3.20 (They other, 16 × TPU v5p)" in chapter.finding
    assert "least cost of accelerators with a declared price: BERT 10.0 USD (We small" in chapter.finding
    cells = list(chapter.tables[1].formatted_rows())
    assert ("not declared", "not declared", "") in [row[-3:] for row in cells]


def test_without_prices_only_accelerator_hours_are_stated() -> None:
    """No price and no power draw is assumed for any accelerator."""
    chapter = running_costs_chapter(make_mlperf_study(RESULTS))
    assert chapter is not None

    assert chapter.finding.endswith("; cost: not declared.")
    assert {row[-3:] for table in chapter.tables for row in table.formatted_rows()} == {
        ("not declared", "not declared", "")
    }


def test_a_round_without_accelerators_has_no_such_chapter() -> None:
    """Hosts and processors are not accelerators; the report lists the question as not answered."""
    (*_, hosts) = RESULTS.rows

    assert running_costs_chapter(make_mlperf_study(MlperfResults((hosts,), "mine.csv"))) is None


def test_a_file_of_prices_is_read_by_accelerator(tmp_path: Path) -> None:
    """A price, a power draw, or both."""
    path = tmp_path / "prices.yaml"
    path.write_text("H100 SXM: {price: 2.5 USD/h, watts: 700W}\nTPU v5p: {price: 4.2 USD/h}\n")

    assert read_accelerator_prices(path, [RESULTS]) == {
        "H100 SXM": AcceleratorPrice(price=HourlyPrice("2.5 USD/h"), watts=Power("700W")),
        "TPU v5p": AcceleratorPrice(price=HourlyPrice("4.2 USD/h")),
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", ":1: declare one key per accelerator, for example H100 SXM: {price: 2.5 USD/h, watts: 700W}"),
        ("H100 SXM: 3", ":1: H100 SXM: must be a section, for example H100 SXM: {price: 2.5 USD/h, watts: 700W}"),
        ("H100 SXM: {}", ":1: H100 SXM: declare price, watts or both"),
        ("H100 SXM: {price: 3}", ":1: H100 SXM.price: should be a price per hour with its currency"),
        ("H100 SXM: {watts: 700}", ":1: H100 SXM.watts: 700 has no unit; write it with its unit, for example 700W"),
        ("H100 SXM: {cost: 700}", ":1: H100 SXM.cost: unknown key; allowed keys are price, watts"),
        ("Abacus: {watts: 1W}", ":1: Abacus: no result has this accelerator; the accelerators are H100 SXM, TPU v5p"),
        (
            "H100 SXM: {price: 3 USD/h}\nTPU v5p: {price: 3 EUR/h}",
            ":2: TPU v5p.price: prices in USD and EUR cannot be compared; use one currency",
        ),
        ("[1", ":1:"),
    ],
)
def test_mistakes_in_a_file_of_prices_name_line_key_and_remedy(tmp_path: Path, text: str, message: str) -> None:
    """The message alone must be enough to correct the file."""
    path = tmp_path / "prices.yaml"
    path.write_text(text)

    with pytest.raises(UserError) as raised:
        read_accelerator_prices(path, [RESULTS])

    assert f"{path}{message}" in str(raised.value)


def test_the_command_takes_a_file_of_prices(tmp_path: Path) -> None:
    """The table of results has energy and cost of the accelerators in the file."""
    prices = tmp_path / "prices.yaml"
    prices.write_text("H100 SXM: {price: 2.5 USD/h, watts: 700W}\n")
    data = tmp_path / "mine.csv"
    columns = "benchmark,submitter,system,accelerator,accelerator_count,minutes"
    data.write_text(f"{columns}\nbert,We,small,H100 SXM,8,30\nbert,We,large,H100 SXM,64,6\n")
    out = tmp_path / "out"

    arguments = ["mlperf", "--data", str(data), "--out", str(out), "--prices", str(prices)]
    result = CliRunner().invoke(cli.app, arguments, catch_exceptions=False, env={"COLUMNS": "200"})

    assert result.exit_code == 0
    assert "least cost of accelerators with a declared price: BERT 10.0 USD (We small, 8 × H100 SXM)" in result.output
    assert (out / "tables" / "running-costs.csv").read_text().splitlines()[1].endswith(",4,2.8,10,USD")
