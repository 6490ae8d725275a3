"""A simulated GPU: a CUDA build of PyTorch runs on a machine that has no GPU.

A CUDA build of PyTorch is host code and machine code of GPUs (SASS). Neither is changed:

- The worker process (``detmatrix.scanner.worker.simulated``) loads stand-ins for NVIDIA's libraries before torch. ``runtime/`` has the
  sources, ``standins`` adds what the scanned build asks for, ``build`` compiles both into a cache. PyTorch's host code then checks
  the flag, raises its alerts, and chooses kernels and grids by the numbers of a published GPU (``device``).
- The interpreter process (``python -m detmatrix.scanner.gpu``, started by ``process``) executes each kernel that the worker launches.
  ``cubin`` finds the kernel in the build, ``sass`` decodes it, ``engine`` executes it in C (``engine/``) by the table ``isa``.

Device memory is one shared mapping at the same address in both processes. A launch goes over a socket and is waited for.

CUDA leaves the order of blocks, warps, lanes and divergent paths open. ``engine`` draws an order from a class of freedom, a
number and a seed, so that whatever an order shows can be shown again.
"""
