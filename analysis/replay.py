"""Does a trial's log explain what its servers held at the end? Replays a trial from its folder."""

from typing import Any

from analysis import mllog
from analysis.folder import TrialFolder
from services.device import HostArray
from services.plan import Plan
from services.replay import Arrivals, replay


def replay_trial(folder: TrialFolder) -> HostArray:
    """The parameters, shape (parameters,), that the trial's servers must have held; `params_sha256` is their digest.

    Raises:
        UserError: the strategy pushes no gradients, or its number format remembers what it has sent.
        ProtocolError: the logs contradict themselves.
    """
    plan = Plan.model_validate_json(folder.plan.read_bytes())
    return replay(plan, [_arrivals(mllog.read(folder.log(holder))) for holder in plan.holders])


def _arrivals(log: mllog.Log) -> Arrivals:
    return Arrivals(updates=_rows(log, "shard_updates"), drops=_rows(log, "shard_drops"))


def _rows(log: mllog.Log, key: str) -> list[dict[str, Any]]:
    batches = [event.value for event in log.of(key)]
    return [dict(zip(batch["columns"], row, strict=True)) for batch in batches for row in batch["rows"]]
