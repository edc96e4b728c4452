"""The trials of a run, each on its own, on all cores where there is much to read; then the run in numbers."""

from functools import partial

from analysis.metrics.proof import together
from analysis.reading.damage import Damage
from analysis.reading.parallel import Team, team_for
from analysis.reading.run_folder import RunFolder
from analysis.reading.run_table import RunTable
from analysis.results import summary
from analysis.results.summary import Summary
from analysis.results.trial import Examined, examine


def examine_run(folder: RunFolder, team: Team | None = None, *, write: bool = False) -> tuple[RunTable, Summary]:
    """All trials that can be read, of their steps what figures draw, and the numbers of the run.

    `team`: who reads, if not one for this alone. `write`: also each trial's record and verdicts.

    Raises:
        UserError: the folder is not a run's.
    """
    folder.check()
    if team is None:
        with team_for(folder.log_bytes) as own:
            return examine_run(folder, own, write=write)
    found = team.spread(partial(examine, write=write), folder.trials)
    sound = [each for each in found if isinstance(each, Examined)]
    unread = tuple(each for each in found if isinstance(each, Damage))
    table = RunTable(folder, tuple(each.table for each in sound), unread)
    shown = together(row for each in sound for row in each.proofs)
    return table, summary.gather(table, [each.result for each in sound], shown)
