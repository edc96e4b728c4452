"""Log events of a node for connections of its data streams that have ended early, and were opened again."""

from dataclasses import dataclass

from services.runtime.run_log import RunLog


@dataclass(frozen=True)
class ConnectionLog:
    """Log of the connections over which a node sends."""

    log: RunLog

    def record_drop(self, peer: str, reason: str) -> None:
        """Log that the connection to `peer` has ended before its stream."""
        self.log.log_event("connection_dropped", {"peer": peer, "reason": reason})

    def record_reopening(self, peer: str, seconds: float, resent_messages: int) -> None:
        """Log that the stream to `peer` has a connection again.

        Args:
            peer: receiver of the stream.
            seconds: virtual seconds without a connection.
            resent_messages: messages that were sent again.
        """
        event = {"peer": peer, "seconds": round(seconds, 6), "resent_messages": resent_messages}
        self.log.log_event("connection_reopened", event)
