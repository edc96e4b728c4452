"""Does a message take as long as its link's rate says?"""

from collections.abc import Iterator

from analysis.checks.evidence import shaped_by_kernel
from analysis.checks.verdict import LINKS, Verdict, invalid, valid
from analysis.reading.run_table import TrialTable


def message_times(trial: TrialTable) -> Verdict:
    """Invalid when the probe's message of the workload's size was further off than rates and the host's timers may be.

    Floods show what passes in the long run; a message also shows credits that let its beginning through too fast, and
    a stream that never gets as fast as its link.
    """
    if not shaped_by_kernel(trial):
        return valid("our own code shapes the links: nothing to probe")
    found = list(_messages(trial))
    if not found:
        return valid("no message was timed: there is no limited way without delay and loss, or it is too slow")
    worst = max(found, key=lambda each: abs(each[2] / each[1] - 1))
    way, declared_s, achieved_s = worst
    told = f"a message from {way} took {1e3 * achieved_s:.3g} ms where its link's rate makes {1e3 * declared_s:.3g}"
    for _, wanted_s, took_s in found:
        if abs(took_s - wanted_s) > trial.plan.fidelity.message_tolerance_s(wanted_s, trial.plan.dilation):
            return invalid(told, LINKS)
    return valid(told)


def _messages(trial: TrialTable) -> Iterator[tuple[str, float, float]]:
    """From whom to whom, declared and achieved."""
    for node, shaped in (trial.status.get("shaping") or {}).items():
        for peer, found in (shaped.get("message_s") or {}).items():
            yield f"{node} to {peer}", float(found["declared"]), float(found["achieved"])
