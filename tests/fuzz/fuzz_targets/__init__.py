"""Table of the fuzz targets: readers of bytes that Ensayo did not write, or that may be damaged.

To add a target, write a function that reads bytes, add a line to `TARGETS`, and put at least one file `seed-…` that the
reader accepts into `tests/fuzz/corpus/<name>/`.
"""

from pydantic import ValidationError

from fuzz_targets import checkpoints, data_files, run_folders, scenarios, streams
from fuzz_targets.target import FuzzTarget
from services.checkpoints.checkpoint_error import CheckpointError
from services.learning.datasets.files import DataFileError
from services.schema.errors import AuthenticationError, ProtocolError, UserError

__all__ = ["TARGETS", "FuzzTarget"]

PROOF_OUTCOME = "too old|not of this run"
# A picture of 50 million pixels is allowed. It is decoded, converted and copied, and the prepared arrays of four
# such pictures are mapped to memory: 0.9 GB and 8 s of CPU time for a WebP file of 2 kB.
PICTURE_BYTES, PICTURE_CPU_S = 3 << 29, 60

TARGETS = {
    target.name: target
    for target in (
        FuzzTarget(
            "scenario", scenarios.read_scenario_file, (UserError,), max_bytes=1500, max_cpu_s=300, is_located=True
        ),
        FuzzTarget("setting", scenarios.read_setting, (UserError,), max_cpu_s=300),
        FuzzTarget("message", streams.read_message, (ProtocolError,)),
        FuzzTarget("tcp_stream", streams.read_tcp_stream),
        FuzzTarget("identity_proof", streams.read_identity_proof, (AuthenticationError,), seed_outcome=PROOF_OUTCOME),
        FuzzTarget("protobuf", streams.read_protobuf, (streams.DecodeError,)),
        FuzzTarget("log", run_folders.read_log),
        FuzzTarget("log_tail", run_folders.read_log_tail),
        FuzzTarget("plan", run_folders.read_plan),
        FuzzTarget("status", run_folders.read_status),
        FuzzTarget("trial_folder", run_folders.read_trial_folder, max_bytes=20_000),
        FuzzTarget("run_folder", run_folders.read_run_files, max_cpu_s=20),
        FuzzTarget(
            "interrupted_run",
            run_folders.read_interrupted_run_folder,
            (UserError,),
            max_cpu_s=20,
            seed_outcome="the run was started (on|with)",
        ),
        FuzzTarget("checkpoint", checkpoints.read_checkpoint_file, (CheckpointError,)),
        FuzzTarget(
            "manifest", checkpoints.read_checkpoint_manifest, (CheckpointError,), seed_outcome="worker-0.*can't be read"
        ),
        FuzzTarget("idx", data_files.read_idx, (DataFileError,)),
        FuzzTarget("cifar10", data_files.read_cifar10, (DataFileError,), max_bytes=20_000),
        FuzzTarget("npz", data_files.read_npz, (DataFileError,)),
        FuzzTarget("csv", data_files.read_csv, (DataFileError,)),
        FuzzTarget("parquet", data_files.read_parquet, (DataFileError,)),
        FuzzTarget("text", data_files.read_text, (DataFileError,)),
        FuzzTarget(
            "picture",
            data_files.read_picture,
            (DataFileError,),
            max_memory_bytes=PICTURE_BYTES,
            max_cpu_s=PICTURE_CPU_S,
        ),
        FuzzTarget("speed_trace", data_files.read_trace, (DataFileError, ValidationError)),
        FuzzTarget("failure_trace", data_files.read_failures, (DataFileError,)),
    )
}
