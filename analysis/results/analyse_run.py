"""Analysis of all trials of a run, and summary of the run.

Large logs are analysed on several cores.
"""

from functools import partial

from analysis.metrics.achieved_properties import merge_over_trials
from analysis.reading.damage import FileProblem
from analysis.reading.parallel import ProcessPool, create_process_pool
from analysis.reading.run_folder import RunFolder
from analysis.reading.run_table import RunLogTables
from analysis.results import summary
from analysis.results.analyse_trial import AnalysedTrial, analyse_trial
from analysis.results.summary import RunSummary


def analyse_run(
    run_folder: RunFolder, pool: ProcessPool | None = None, *, write: bool = False
) -> tuple[RunLogTables, RunSummary]:
    """Analyse all trials of a run, and summarise the run.

    Return the tables of the trials that can be read, and the summary of the run. The tables have only those columns of
    steps that figures need.

    Args:
        run_folder: folder of a finished or unfinished run.
        pool: processes that read the trials; None starts new ones if the logs are large.
        write: whether to also write result.txt, steps.csv and fidelity.json of each trial.

    Raises:
        UserError: the folder is not a run folder.
    """
    run_folder.check_is_run_folder()
    if pool is None:
        with create_process_pool(run_folder.total_log_bytes) as new_pool:
            return analyse_run(run_folder, new_pool, write=write)
    analysed = pool.map(partial(analyse_trial, write=write), run_folder.trial_folders)
    trials = [each for each in analysed if isinstance(each, AnalysedTrial)]
    unread_damage = tuple(each for each in analysed if isinstance(each, FileProblem))
    table = RunLogTables(run_folder, tuple(trial.table for trial in trials), unread_damage)
    proofs = merge_over_trials(proof for trial in trials for proof in trial.proofs)
    return table, summary.build_run_summary(table, [trial.result for trial in trials], proofs)
