"""What one bullet of the documented lists says, as a run file holds it."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

# deterministic  "will act deterministically when mode=True"
# raises         "will throw a RuntimeError when mode=True"
# cublas         raises unless CUBLAS_WORKSPACE_CONFIG is set (torch up to 2.9 lists these apart)
# other          bullets about ops under a heading that is none of these: never parsed, always shown
# note           a note about calls of any op, whatever the flag: no bullet, and it names no ops
Section = Literal["deterministic", "raises", "cublas", "other", "note"]
ClaimDevice = Literal["cpu", "cuda", "mps", "any"]
# backward  "when attempting to differentiate", or of a tensor "that requires grad"
# any       all else: "when called" is said of convolutions too, whose gradients are what differs
# forward   said by no release yet
ClaimDirection = Literal["forward", "backward", "any"]

# keyword      a keyword argument has one of the values: accumulate=True, mode='max', a nested list of modes
# argument     what an argument is: src "Tensor", weights "given", index "list of tensors"
# input        a property of the input tensor: quantized, requires_grad
# dtype        the input's dtype is one of the values: floating, complex, integer, bool
# layout       the operands' layouts: "sparse-dense"
# output       the claim is about one output: "indices"
# fill         what uninitialised elements are filled with: "floating:NaN"
# unspecified  the bullet says that there is a condition and not which: "in some cases"
Kind = Literal["keyword", "argument", "input", "dtype", "layout", "output", "fill", "unspecified"]


class Condition(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One thing a claim presupposes; where there are several, all of them."""

    kind: Kind
    name: str
    values: tuple[str, ...]  # any of them


class Claim(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one bullet says of its ops on one device."""

    # section/targets[/device][/direction][/name=value…], the same in every release whatever the wording:
    # "raises/torch.Tensor.put_/cuda/accumulate=True".
    id: str
    section: Section
    targets: tuple[str, ...]  # dotted names, in the bullet's order
    device: ClaimDevice
    direction: ClaimDirection
    conditions: tuple[Condition, ...]
    text: str  # the bullet's own words
    parsed: bool  # false: not understood; "any" and no conditions then mean nothing
    order: Annotated[
        int, Meta(ge=0, le=2**53)
    ]  # the bullet's place in the docstring, from 0; the claims of one bullet share it
    # The bullet's lines without its indentation, and the blank lines up to the next bullet, so that the lists
    # can be written again as they were. None in the tables of reports/claims, which hold no docstrings.
    source: str | None = None
