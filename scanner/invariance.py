"""Properties beyond run to run: whether an op's bits change with the threads, with the batch, or with the memory layout.

Declared as data, for the command line, the worker, the run file and reports. *Batch* is meant as NVIDIA means it
(https://docs.nvidia.com/cudnn/operations/determinism): what is computed of an item stays the same when the size of its batch,
its place in it or its neighbours change.
"""

from __future__ import annotations

from typing import Literal

Property = Literal["threads", "batch", "layout"]

# One sentence each, printed with reports.
PROPERTIES: dict[Property, str] = {
    "threads": "Whether the bits change with the number of threads: 1, 2, 3, 4, 8 against the worker's own number (CPU).",
    "batch": "Whether an item's bits change with the batch it is computed in: its size (1, 2, 3, 5, 8, 16, 31, 32), and which "
    "items of the whole it holds (the first, those in the middle, the last, some in a random order). Gradients that are summed "
    "over the batch are left out.",
    "layout": "Whether the bits change with the strides of a floating-point input: contiguous, transposed, channels last, cut out "
    "of wider rows.",
}
THREADS = (1, 2, 3, 4, 8)
SIZES = (1, 2, 3, 5, 8, 16, 31, 32)
POSITIONS = ("first", "middle", "last", "permuted")
LAYOUTS = ("contiguous", "transposed", "channels_last", "sliced")

# same            every execution gave the bits of the reference
# varies          every execution gave the same bits, and not those of the reference
# not_repeatable  executions differed among themselves
# raised          it raised there; `message` says what
# not_tried       the time was over, or the value cannot be had
Trial = Literal["same", "varies", "not_repeatable", "raised", "not_tried"]

# Executions at each value; where the bits are others than those of the reference, so many that a race would hardly look like it.
EXECUTIONS, EXECUTIONS_IF_OTHER = 2, 10
