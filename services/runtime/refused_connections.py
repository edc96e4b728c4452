"""Log events of a node for connections, streams and calls that the node has refused."""

from dataclasses import dataclass

from services.runtime.run_log import RunLog

MAX_LOGGED_REJECTIONS = 100  # per node: an attacker must not be able to fill the disk
MAX_NAME_CHARACTERS = 64  # of a claimed name; names of nodes are shorter


@dataclass
class RefusedConnectionLog:
    """Log of one node for what it refuses; each rejection is one event `refused_connection`."""

    log: RunLog
    max_events: int = MAX_LOGGED_REJECTIONS
    count: int = 0  # of all rejections, including those that were not logged

    def record(self, reason: str, claimed_sender: str = "") -> None:
        """Log a rejection, unless this node has logged `max_events` already.

        Args:
            reason: why it was refused.
            claimed_sender: name that the other process claims; empty if it claims none.
        """
        self.count += 1
        if self.count <= self.max_events:
            is_last = self.count == self.max_events
            event = {"reason": reason, "claimed_sender": claimed_sender[:MAX_NAME_CHARACTERS], "is_last": is_last}
            self.log.log_event("refused_connection", event)
