"""Reader of the file that declares prices and power draws of accelerators for published results."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from pydantic import ValidationError

from analysis.mlperf.prices import PRICE_FILE_EXAMPLE, AcceleratorPrice, PriceByAccelerator
from analysis.mlperf.reading.results import MlperfResults
from compose.scenario_files.problems import ScenarioError, ScenarioProblem
from compose.scenario_files.yaml_document import YamlDocument, parse_yaml
from services.schema.errors import UserError


def read_accelerator_prices(prices_path: Path, mlperf_results: Sequence[MlperfResults]) -> PriceByAccelerator:
    """Return the prices and power draws that a YAML file declares, by kind or name of the accelerator.

    Args:
        prices_path: file with one key per accelerator.
        mlperf_results: results whose accelerators the file may name.

    Raises:
        UserError: the file cannot be read, or has mistakes. The message lists each with file, line and allowed values.
    """
    try:
        document = parse_yaml(prices_path.read_text(encoding="utf-8"), str(prices_path))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{prices_path}: cannot be read: {error}") from error
    if not isinstance(document.data, dict) or not document.data:
        raise UserError(f"{prices_path}:1: declare one key per accelerator, for example {PRICE_FILE_EXAMPLE}")
    prices: dict[str, AcceleratorPrice] = {}
    problems: list[ScenarioProblem] = []
    for accelerator, declaration in document.data.items():
        try:
            prices[str(accelerator)] = AcceleratorPrice.model_validate(declaration)
        except ValidationError as error:
            problems += _list_problems(document, str(accelerator), error)
    problems += _find_unknown_accelerators(document, mlperf_results)
    problems += _find_second_currency(document, prices)
    if problems:
        raise ScenarioError(problems, later_checks_skipped=False)
    return prices


def _list_problems(document: YamlDocument, accelerator: str, error: ValidationError) -> Iterator[ScenarioProblem]:
    for details in error.errors(include_url=False):
        path = (accelerator, *details["loc"])
        message = str(details.get("ctx", {}).get("error", details["msg"]))
        if details["type"] == "extra_forbidden":
            message = f"unknown key; allowed keys are {', '.join(AcceleratorPrice.model_fields)}"
        if details["type"] == "model_type":
            message = f"must be a section, for example {PRICE_FILE_EXAMPLE}"
        yield ScenarioProblem(document.find_position_of_key(path), ".".join(map(str, path)), message)


def _find_unknown_accelerators(
    document: YamlDocument, mlperf_results: Iterable[MlperfResults]
) -> Iterator[ScenarioProblem]:
    """Yield a problem for each key that names no accelerator of the results."""
    rows = [row for results in mlperf_results for row in results.rows if row.unit == "accelerators"]
    kinds = dict.fromkeys(row.accelerator_kind for row in rows)
    known = {*kinds, *(row.accelerator for row in rows)}
    for accelerator in document.data:
        if accelerator not in known:
            message = f"no result has this accelerator; the accelerators are {', '.join(sorted(kinds))}"
            yield ScenarioProblem(document.find_position_of_key((accelerator,)), str(accelerator), message)


def _find_second_currency(document: YamlDocument, prices: PriceByAccelerator) -> Iterator[ScenarioProblem]:
    """Yield a problem for each price in another currency than the first one: costs could not be compared."""
    priced = {name: declared.price for name, declared in prices.items() if declared.price}
    first = next(iter(priced.values()), None)
    for name, price in priced.items():
        if first and price.currency != first.currency:
            message = f"prices in {first.currency} and {price.currency} cannot be compared; use one currency"
            yield ScenarioProblem(document.find_position_of_key((name, "price")), f"{name}.price", message)
