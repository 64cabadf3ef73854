"""Prints whether `pyarrow` reads every row of a parquet file. The checksums of its pages are compared as well."""

import json
import sys

import pyarrow as pa
import pyarrow.parquet as pq

_ROWS_AT_ONCE = 4096


def rows(path: str) -> dict[str, list[str]]:
    """Read every row. Returns what that proves, in the form that `subprocesses.read` expects."""
    try:
        with pq.ParquetFile(path, page_checksum_verification=True, buffer_size=1 << 20) as table:
            promised = table.metadata.num_rows
            batches = table.iter_batches(batch_size=_ROWS_AT_ONCE, use_threads=False)
            seen = sum(batch.num_rows for batch in batches)
    except MemoryError as error:
        return {"stopped": [str(error) or "it takes more memory than is allowed here"]}
    except pa.ArrowNotImplementedError as error:
        return {"not_proved": [f"pyarrow {pa.__version__} cannot read it: {error}"]}
    except (pa.ArrowException, OSError) as error:
        return {"problems": [str(error)]}
    if seen != promised:
        return {"problems": [f"{seen:,} rows of {promised:,}"]}
    return {"proved": [f"pyarrow {pa.__version__} reads every row: {seen:,}"]}


if __name__ == "__main__":
    print(json.dumps(rows(sys.argv[1])))  # noqa: T201
