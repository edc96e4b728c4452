"""Interface to the nodes of a trial, which each engine implements, and the errors that make a trial fail."""

import re
from abc import ABC, abstractmethod

from services.cluster.node_faults import NodeAction
from services.plan.trial_outcome import CpuThrottleCounts, LinkShapingRecord
from services.schema.errors import EnsayoError

# Beginning of a line of gRPC's own log, such as `I1127 01:15:24.515533   17926 chttp2_transport.cc:1403] `.
GRPC_LOG_LINE = re.compile(r"[IWEF]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ \S+\.(cc|h):\d+\] ")


class TrialFailed(EnsayoError):
    """Error that makes a trial fail.

    A node ended with an error or made no progress in time, or the engine failed.
    """


class LinkProbeFailed(TrialFailed):
    """Error because measured rates or delays differ from the plan, although the kernel's settings are those requested.

    The usual cause is a busy host.
    """


class NodeProcessControl(ABC):
    """Interface by which declared faults are applied to the processes of nodes."""

    @abstractmethod
    def apply_action(self, action: NodeAction, node_name: str) -> None:
        """Kill a node's processes, freeze or thaw them, use up their memory, or start the node again.

        After `kill` and `exhaust_memory`, the processes have ended; `start` returns before the node has joined.
        """

    @abstractmethod
    def describe_mechanism(self, action: NodeAction) -> str:
        """Return the name of the mechanism that applies an action, such as SIGKILL."""


def select_last_line(stderr_text: str) -> str:
    """Return the last line of a node's standard error, or an empty text.

    Lines of gRPC's own log count only if there are no others: gRPC may log the end of a connection after the error that
    ended the node.
    """
    lines = [line for line in stderr_text.strip().splitlines() if line.strip()]
    own_lines = [line for line in lines if not GRPC_LOG_LINE.match(line)]
    return (own_lines or lines or [""])[-1]


class TrialNodeRunner(ABC):
    """Interface to the nodes of one trial on this host.

    Each engine implements this interface.
    """

    @abstractmethod
    def start(self) -> None:
        """Start all nodes of the trial.

        Each node waits until all nodes have joined and the coordinator starts training.
        """

    @abstractmethod
    def shape_links(self) -> dict[str, LinkShapingRecord]:
        """Shape all links as the trial plan declares.

        Return a record per link, with rates read back from the kernel, if any.
        """

    def probe_links(self) -> dict[str, LinkShapingRecord]:
        """Measure all links before training, and return the link records with the results.

        All nodes wait for training to start meanwhile.

        Raises:
            LinkProbeFailed: a link differs from the plan.
        """
        return {}

    def read_link_counters(self) -> dict[str, LinkShapingRecord]:
        """Read the packet counters of all links after training, and return the link records with the counters."""
        return {}

    @abstractmethod
    def start_training(self) -> None:
        """Signal the coordinator that all links are shaped and that training may begin."""

    @abstractmethod
    def exit_codes(self) -> dict[str, int]:
        """Return the exit codes of all nodes that have ended, by node name."""

    @abstractmethod
    def last_stderr_line(self, node_name: str) -> str:
        """Return the last line that a node has written to its standard error, as `select_last_line` selects it.

        The result is empty if there is no such line.
        """

    def read_cpu_throttling(self) -> dict[str, CpuThrottleCounts]:
        """Return the CPU throttling counters of each node with a CPU quota.

        They count how often the kernel has throttled the node since the start of the node.
        """
        return {}

    @abstractmethod
    def process_control(self) -> NodeProcessControl:
        """Return the interface by which declared faults are applied to the nodes."""

    @abstractmethod
    def stop(self) -> tuple[str, ...]:
        """Stop and remove all nodes and networks of the trial.

        All logs are in the trial folder afterwards.

        Returns:
            Networks that the engine could not remove although no node uses them; the trial does not fail for it.
        """
