"""Environment variables that launchers of distributed training set for a rank, which scripts read."""

ROLE = "default"  # of torchrun


def launch_variables(
    rank: int, worker_count: int, master_address: str, master_port: int, run_id: str
) -> dict[str, str]:
    """Return the variables that torchrun sets for a process that is the only one on its node, such as those of env://.

    Args:
        rank: of the process.
        worker_count: number of ranks.
        master_address: host of the rendezvous.
        master_port: port of the rendezvous.
        run_id: name of the run, equal on all ranks.
    """
    own, count = str(rank), str(worker_count)
    return {
        "RANK": own,
        "WORLD_SIZE": count,
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "GROUP_RANK": own,
        "GROUP_WORLD_SIZE": count,
        "ROLE_NAME": ROLE,
        "ROLE_RANK": own,
        "ROLE_WORLD_SIZE": count,
        "MASTER_ADDR": master_address,
        "MASTER_PORT": str(master_port),
        "TORCHELASTIC_RUN_ID": run_id,
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_USE_AGENT_STORE": "False",  # rank 0 opens the store
    }


def torchrun_variables(rank: int, worker_count: int, master_address: str, master_port: int) -> dict[str, str]:
    """Return the variables from which torchrun takes its options; the arguments are those of `launch_variables`."""
    return {
        "PET_NNODES": str(worker_count),
        "PET_NPROC_PER_NODE": "1",
        "PET_NODE_RANK": str(rank),
        "PET_MASTER_ADDR": master_address,
        "PET_MASTER_PORT": str(master_port),
        "PET_RDZV_BACKEND": "static",
    }


# Of the process of every command, besides those of its rank: it computes on the CPU, its lines are read when they are
# written, and its folder is read-only.
PROCESS_VARIABLES = {"CUDA_VISIBLE_DEVICES": "", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"}
RESERVED_VARIABLES = frozenset(  # that users can't set: ranks could not meet, or would not be measured
    {
        *launch_variables(0, 1, "", 0, ""),
        *torchrun_variables(0, 1, "", 0),
        *PROCESS_VARIABLES,
        *("GLOO_SOCKET_IFNAME", "HOME", "PATH", "PYTHONHOME", "PYTHONPATH", "TF_CONFIG", "TP_SOCKET_IFNAME"),
    }
)
