"""Properties beyond run to run: whether an op's bits change with the threads, with the batch, or with the memory layout.

Declared as data, for the command line, the worker, the run file and reports. *Batch* is meant as NVIDIA means it
(https://docs.nvidia.com/cudnn/operations/determinism): what is computed of an item stays the same when the size of its batch,
its place in it or its neighbours change.
"""

from __future__ import annotations

from typing import Literal

Property = Literal["threads", "batch", "layout"]

# What each asks, with the flag off; printed with reports, and without a full stop.
PROPERTIES: dict[Property, str] = {
    "threads": "whether bits change with the number of threads",
    "batch": "whether an item's bits change with the batch around it",
    "layout": "whether bits change with the memory layout of inputs",
}
# Three letters, where a report has room for no more.
HEADS: dict[Property, str] = {"threads": "THR", "batch": "BAT", "layout": "LAY"}
THREADS = (1, 2, 3, 4, 8)
SIZES = (1, 2, 3, 5, 8, 16, 31, 32)
POSITIONS = ("first", "middle", "last", "permuted")
LAYOUTS = ("contiguous", "transposed", "channels_last", "sliced")

# same            every execution gave the bits of the baseline
# varies          every execution gave the same bits, and not those of the baseline
# not_repeatable  executions differed among themselves
# raised          it raised there; `message` says what
# not_tried       the time was over, or the machine does not have the value
Trial = Literal["same", "varies", "not_repeatable", "raised", "not_tried"]

# Executions at each value; where the bits are others than those of the baseline, so many that a race would hardly look like it.
EXECUTIONS, EXECUTIONS_IF_OTHER = 2, 10
