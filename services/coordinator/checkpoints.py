"""Completion of checkpoints: the coordinator writes the manifest when all nodes have written their files."""

from collections.abc import Callable
from dataclasses import dataclass, field

from services.checkpoints.files import WrittenCheckpoint
from services.checkpoints.folder import CheckpointFolder
from services.runtime.membership import CheckpointReport, Membership
from services.runtime.run_log import RunLog

KEPT_CHECKPOINTS = 2  # complete ones; older ones are removed


@dataclass
class CheckpointCompletion:
    """Collects the reports of nodes on their checkpoint files, and completes checkpoints."""

    folder: CheckpointFolder
    plan_digest: str
    trial: str
    server_names: tuple[str, ...]
    get_membership: Callable[[], Membership]
    log: RunLog
    _files: dict[tuple[int, int], dict[str, WrittenCheckpoint]] = field(default_factory=dict)  # by epoch and step

    def handle_report(self, report: CheckpointReport) -> None:
        """Record a file, and complete its checkpoint if it is the last one.

        Files of earlier epochs, and of nodes that are not members, do not count.

        Raises:
            CheckpointError: the manifest can't be written.
        """
        membership = self.get_membership()
        members = {*membership.workers, *self.server_names}
        if report.epoch != membership.epoch or report.node_name not in members:
            return
        files = self._files.setdefault((report.epoch, report.step), {})
        files[report.node_name] = WrittenCheckpoint(report.bytes, report.digest)
        if files.keys() != members:
            return
        del self._files[report.epoch, report.step]
        self.folder.write_manifest(
            self.plan_digest, self.trial, report.step, membership.workers, files, membership.epoch
        )
        self.folder.remove_all_but_newest(KEPT_CHECKPOINTS)
        size = sum(written.bytes for written in files.values())
        self.log.log_event("checkpoint_complete", {"nodes": len(files), "bytes": size}, step=report.step)
