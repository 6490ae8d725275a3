"""What the scripts of ``detmatrix repro --invariance`` are made of; ``scanner.repro.invariance`` fills in what stands behind dollar signs."""

from __future__ import annotations

from scanner.invariance import Property

FORWARD = """
def execute(args, kwargs, leaves=None):
    torch.manual_seed($SEED)
    with torch.no_grad():
        return $JUDGED
"""
BACKWARD = """
UPSTREAM = []

def execute(args, kwargs, leaves, upstream=UPSTREAM):
    torch.manual_seed($SEED)
    output = $CALL
    outputs = $OUTPUTS
    outputs = [o for o in outputs if isinstance(o, torch.Tensor) and o.requires_grad]
    if not UPSTREAM:
        g = torch.Generator().manual_seed($UPSTREAM)  # random, since equal gradients hide a reordered sum
        UPSTREAM.extend(torch.empty_like(o).copy_($DRAWN) for $EACH)
    return $JUDGED
"""

COMPARE = '''
def same(one, other):
    """Compare raw bits: NaN and the sign of zero count."""
    return all(torch.equal(raw(x), raw(y)) for x, y in zip(one, other))

def raw(t):
    return t.detach().clone(memory_format=torch.contiguous_format).view(-1).view(torch.uint8)

def tell(value, expected, made):
    """Print what the executions at one value gave."""
    if not all(same(made[0], one) for one in made):
        print(f"{value}: not repeatable: {len(made)} executions differ among themselves")
    elif same(made[0], expected):
        print(f"{value}: the same bits, {len(made)} times")
    else:
        pairs = [(x.detach().double(), y.detach().double()) for x, y in zip(made[0], expected)]
        far = max((x - y).abs().max().item() for x, y in pairs)
        share = sum((x != y).sum().item() for x, y in pairs) / sum(x.numel() for x, _ in pairs)
        print(f"{value}: other bits, the same ones {len(made)} times: {100 * share:.3g} % of the elements, up to {far:.3g} apart")
'''
REPLACED = '''
def replaced(value, new):
    """Return arguments with other tensors in place of some."""
    if isinstance(value, (list, tuple)):
        return type(value)(replaced(item, new) for item in value)
    if isinstance(value, dict):
        return {name: replaced(item, new) for name, item in value.items()}
    return new.get(id(value), value)
'''
PICKED = '''
def picked(tensor, axis, places):
    """Return some items in memory of their own, laid out in the order of the original's strides."""
    order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
    chosen = tensor.detach().permute(order).index_select(order.index(axis % tensor.dim()), places)
    return chosen.permute([order.index(one) for one in range(tensor.dim())])

def tensors_in(value):
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in tensors_in(item)]
    return [value] if isinstance(value, torch.Tensor) else []
'''
RELAID = '''
def relaid(tensor, layout):
    """Return the same values in another layout."""
    plain = tensor.detach()
    if layout == "transposed":
        return plain.transpose(-1, -2).contiguous().transpose(-1, -2)
    if layout == "channels_last":
        return plain.contiguous(memory_format=torch.channels_last if plain.dim() == 4 else torch.channels_last_3d)
    if layout == "sliced":  # cut out of wider rows
        return plain.new_zeros((*plain.shape[:-1], plain.shape[-1] + 2))[..., 1:-1].copy_(plain)
    return plain.contiguous()
'''

_START = """
def main():
    print(f"torch {torch.__version__}, CUDA {torch.version.cuda}, {torch.get_num_threads()} threads")
    args, kwargs, leaves = (*inputs(), [])[:3]
"""
THREADS = (
    _START
    + """\
    torch.set_num_threads($OWN)
    first = execute(args, kwargs, leaves)
    tell("threads=$OWN, the baseline", first, [execute(args, kwargs, leaves) for _ in range(RUNS)])
    for count in $VALUES:
        torch.set_num_threads(count)
        tell(f"threads={count}", first, [execute(args, kwargs, leaves) for _ in range(RUNS)])
"""
)
BATCH = (
    _START
    + """\
    held = {id(t): (t, axis) for name, axis in BATCH.items()
            for t in tensors_in(args[name] if isinstance(name, int) else kwargs[name])}
    leaves = [leaf for leaf in leaves if id(leaf) in held]  # the gradients of others are summed over the batch
    first = execute(args, kwargs, leaves)
    tell("the whole batch", first, [execute(args, kwargs, leaves) for _ in range(RUNS)])
    (items,) = {t.shape[axis] for t, axis in held.values()}
    order = torch.randperm(items, generator=torch.Generator().manual_seed(0))
    for position, size in ((position, size) for position, sizes in PARTS.items() for size in sizes):
        start = {"first": 0, "middle": (items - size) // 2, "last": items - size}.get(position)
        places = (order[:size] if start is None else torch.arange(start, start + size)).to("$DEVICE")
        new = {key: picked(t, axis, places).requires_grad_(t.requires_grad) for key, (t, axis) in held.items()}
        mine = [new[id(leaf)] for leaf in leaves]
$PART\
        part = replaced(args, new), replaced(kwargs, new), mine$GIVEN
        tell(f"{size} of {items}, {position}", expected, [execute(*part) for _ in range(RUNS)])
"""
)
# What of the whole is held against a part.
FORWARD_PART = "        expected = [picked(one, OUTPUTS, places) for one in first]\n"
BACKWARD_PART = """\
        expected = [picked(one, held[id(leaf)][1], places) for one, leaf in zip(first, leaves)]
        upstream = [picked(one, OUTPUTS, places) for one in UPSTREAM]
"""
LAYOUT = (
    _START
    + """\
    first = execute(args, kwargs, leaves)
    tell("the inputs as drawn", first, [execute(args, kwargs, leaves) for _ in range(RUNS)])
    for value, layout, tensor in $VALUES:
        new = {id(tensor): relaid(tensor, layout).requires_grad_(tensor.requires_grad)}
        other = replaced(args, new), replaced(kwargs, new), [new.get(id(leaf), leaf) for leaf in leaves]
        tell(value, first, [execute(*other) for _ in range(RUNS)])
"""
)
MAINS: dict[Property, str] = {"threads": THREADS, "batch": BATCH, "layout": LAYOUT}
HELPERS: dict[Property, tuple[str, ...]] = {
    "threads": (),
    "batch": (REPLACED, PICKED),
    "layout": (REPLACED, RELAID),
}
END = """
if __name__ == "__main__":
    main()
"""
