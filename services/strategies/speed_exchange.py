"""Cost of the exchange of measured speeds, from which all workers compute the same shares of a batch."""

from dataclasses import replace

from services.collectives.data_exchange.gather_numbers import NUMBER_BYTES, gather_rounds
from services.strategies.base import BytesPerStep, ExchangePattern, average_bytes_per_step
from services.strategies.cost_model import CostModel, StepTimePrediction


def add_speed_exchange_bytes(sent: BytesPerStep, exchange: ExchangePattern) -> BytesPerStep:
    """Return the payload bytes per step, with those of the exchange of speeds.

    Each worker sends n-1 numbers per exchange.
    """
    period, workers = exchange.balance.resize_period, len(sent.workers)
    if not period:
        return sent
    added = average_bytes_per_step(NUMBER_BYTES * (workers - 1), period)
    return replace(sent, workers=tuple(size_bytes + added for size_bytes in sent.workers))


def add_speed_exchange_time(
    prediction: StepTimePrediction, exchange: ExchangePattern, cost_model: CostModel
) -> StepTimePrediction:
    """Return the predicted step time, with the mean time of the exchange of speeds."""
    period = exchange.balance.resize_period
    if not period:
        return prediction
    exchange_s = prediction.exchange_s + predict_speed_exchange_s(cost_model) / period
    return prediction.model_copy(
        update={"exchange_s": exchange_s, "formula": f"{prediction.formula} + exchange of speeds/period"}
    )


def predict_speed_exchange_s(cost_model: CostModel) -> float:
    """Return the predicted seconds in which workers exchange their speeds: ⌈lg n⌉ short messages after each other."""
    workers = cost_model.workers
    seconds = 0.0
    for distance, numbers in gather_rounds(len(workers)):
        flows = [(worker, workers[rank - distance]) for rank, worker in enumerate(workers)]
        size_bytes = NUMBER_BYTES * numbers * cost_model.payload_scale
        seconds += cost_model.max_latency_s(flows) + cost_model.concurrent_transfer_s(flows, size_bytes)
    return seconds
