"""The process that loads cuDNN: a request on standard input, lines of JSON on standard output.

A library that is asked about GPUs that are not there may end its process; the command's own goes on.
"""

from __future__ import annotations

import ctypes
import json
from contextlib import ExitStack

from msgspec.structs import replace

from scanner.cudnn.enums import HEUR_MODE_A, Attribute, Kind
from scanner.cudnn.gpus import PRESENT, Description
from scanner.cudnn.graphs import GraphBuilder
from scanner.cudnn.library import CudnnError, CudnnLibrary, Descriptor, note_name
from scanner.cudnn.processes import Say, serve
from scanner.cudnn.record import Engine, EngineCell, Loaded, Request

_MOST_NOTES = 32
_MOST_CONFIGURATIONS = 256


def device(library: CudnnLibrary, stack: ExitStack, description: Description | None) -> Descriptor:
    """Describe a GPU to cuDNN, or name the first one that is there.

    Raises:
        CudnnError: cuDNN refuses the description: before 9.8 it reads none.
    """
    one = stack.enter_context(Descriptor(library, Kind.DEVICEPROP))
    if description is None:
        return one.set(Attribute.DEVICEPROP_DEVICE_ID, 0).finalize()
    return one.set(Attribute.DEVICEPROP_JSON_REPRESENTATION, json.dumps(description).encode()).finalize()


def accepted(library: CudnnLibrary, graph: Descriptor, gpu: Descriptor) -> tuple[int, tuple[Engine, ...]]:
    """Return how many engines cuDNN numbers for a graph, and those that it accepts, with their notes.

    Raises:
        CudnnError: cuDNN does not say.
    """
    total = graph.get(Attribute.OPERATIONGRAPH_ENGINE_GLOBAL_COUNT)[0]
    found = []
    for number in range(total):
        with Descriptor(library, Kind.ENGINE) as engine:
            engine.set(Attribute.ENGINE_OPERATION_GRAPH, graph)
            engine.set(Attribute.ENGINE_GLOBAL_INDEX, number)
            engine.set(Attribute.ENGINE_DEVICEPROP, gpu)
            try:
                engine.finalize()
            except CudnnError:
                continue  # this engine is not for this graph on this GPU
            notes = engine.get(Attribute.ENGINE_NUMERICAL_NOTE, _MOST_NOTES)
            found.append(Engine(number, tuple(note_name(one) for one in sorted(notes))))
    return total, tuple(found)


def order(library: CudnnLibrary, graph: Descriptor, gpu: Descriptor) -> tuple[int, ...]:
    """Return the engines in the order of heuristics mode A, each at its best place.

    Raises:
        CudnnError: cuDNN has none.
    """
    with ExitStack() as stack:
        heuristics = stack.enter_context(Descriptor(library, Kind.ENGINEHEUR))
        heuristics.set(Attribute.ENGINEHEUR_OPERATION_GRAPH, graph)
        heuristics.set(Attribute.ENGINEHEUR_MODE, HEUR_MODE_A)
        heuristics.set(Attribute.ENGINEHEUR_DEVICEPROP, gpu)
        heuristics.finalize()
        count = min(heuristics.count(Attribute.ENGINEHEUR_RESULTS), _MOST_CONFIGURATIONS)
        listed = [stack.enter_context(Descriptor(library, Kind.ENGINECFG)) for _ in range(count)]
        found: dict[int, None] = {}
        for one in listed[: heuristics.fill(Attribute.ENGINEHEUR_RESULTS, listed)]:
            with Descriptor(library, Kind.ENGINE) as engine:
                one.fill(Attribute.ENGINECFG_ENGINE, [engine])
                found[engine.get(Attribute.ENGINE_GLOBAL_INDEX)[0]] = None
        return tuple(found)


def accept(library: CudnnLibrary, graph: Descriptor, gpu: Descriptor, cell: EngineCell) -> EngineCell:
    """Return a cell with the engines that cuDNN accepts; a refusal is what it says too."""
    try:
        total, engines = accepted(library, graph, gpu)
    except CudnnError as error:
        return replace(cell, refused=str(error))
    return replace(cell, total=total, engines=engines)


def rank(library: CudnnLibrary, graph: Descriptor, gpu: Descriptor, cell: EngineCell) -> EngineCell:
    """Return a cell with the order of its engines; a refusal is what it says too."""
    try:
        return replace(cell, order=order(library, graph, gpu))
    except CudnnError as error:
        return replace(cell, refused=str(error))


def answer(request: Request, say: Say) -> None:
    """Load cuDNN and ask it; write a line for what was loaded, and one for each cell whenever more is known of it."""
    gpus: dict[str, Descriptor] = {}
    with ExitStack() as stack:
        try:
            if request.stub is not None:
                ctypes.CDLL(request.stub, mode=ctypes.RTLD_GLOBAL)
            library = CudnnLibrary(request.library)
        except (OSError, AttributeError) as error:
            say(Loaded(failed=str(error)))
            return
        states = {}
        for name, description in request.gpus.items():
            try:
                gpus[name] = device(library, stack, None if name == PRESENT else description)
                states[name] = PRESENT if name == PRESENT else "described"
            except CudnnError as error:
                states[name] = str(error)
        say(Loaded(library.version, states))
        for gpu, operation, problem, dtype, layout in request.places:
            if gpu not in gpus:
                continue
            cell = EngineCell(gpu, operation, problem, dtype, layout)
            with ExitStack() as graphs:
                try:
                    graph = GraphBuilder(library, graphs).graph(
                        operation, request.problems[problem], dtype, layout
                    )
                except CudnnError as error:
                    say(replace(cell, refused=str(error)))
                    continue
                cell = accept(library, graph, gpus[gpu], cell)
                # Said before the heuristics are asked, which may end the process.
                say(cell)
                if cell.engines and gpu not in request.unordered:
                    say(rank(library, graph, gpus[gpu], cell))


def main() -> None:
    """Answer the request on standard input."""
    serve(Request, answer)
