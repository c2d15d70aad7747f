# SPDX-License-Identifier: Apache-2.0
"""What the ranks of an engine hold together: one logical model, of which each has some layers and some heads."""

import dataclasses
import itertools

import cairn

from ._vllm_layout import Group, Layout
from ._vllm_slot_messages import Handshake, Place, plain, unplain

# Fields of a Group in which ranks may differ.
_OF_A_RANK = ("layers", "spec", "first_head")


@dataclasses.dataclass
class Ranks:
    """groups: of _vllm_layout, with the layers and heads of all ranks. described: their specs with rotation, as far as all
    ranks say the same. places: of each rank, one for each group."""

    groups: tuple[Group, ...]
    described: list[cairn.LayerGroup]
    places: dict[int, list[Place]]

    @classmethod
    def of(cls, shakes, degrees):
        """shakes: {(stage of pipeline parallel, rank of tensor parallel): Handshake}; degrees: as in Settings. ValueError
        names the first field in which two ranks disagree, or what they lack."""
        _check_numbers(shakes, *degrees)
        stages = [[shake for _, shake in sorted(some)] for _, some in itertools.groupby(
            sorted(shakes.items(), key=lambda item: item[0]), lambda item: item[0][0])]
        first = stages[0][0]
        for other in itertools.chain(*stages):
            _compare(first, other, ("cache groups", len(first.groups), len(other.groups)),
                     ("content settings", first.content, other.content))
        groups, described, places = [], [], {shake.rank: [] for shake in shakes.values()}
        for index in range(len(first.groups)):
            group = _together(stages, index)
            groups.append(group)
            described.append(_described(stages, index, group))
            _place(stages, index, group, places)
        return cls(tuple(groups), described, places)


def layout_of_rank(groups, content):
    """A Layout for copies between slots and blocks, which no identity belongs to."""
    return Layout(groups, cairn.ModelIdentity("rank"), content)


def layout_of_all(layout, places):
    """As layout_of_rank, of what all ranks hold together."""
    return dataclasses.replace(layout, groups=tuple(
        group.whole(_resized(group.spec, place.layers, group.all_heads)) for group, place in zip(layout.groups, places)))


def spec_of_rank(layout, places):
    """The spec of a rank's Layout, with what it is of the whole."""
    return cairn.ModelSpec(layout.identity, [group.spec for group in layout.groups], logical=[
        cairn.LogicalGroup(group.spec.name, layers=place.layers, heads=group.all_heads, layer_begin=place.first_layer,
                           layer_end=place.first_layer + group.spec.layers, head_begin=group.first_head,
                           head_end=group.first_head + group.heads)
        for group, place in zip(layout.groups, places)])


def _check_numbers(shakes, width, stages):
    """Each rank is there, once."""
    keys = set(itertools.product(range(stages), range(width)))
    if shakes.keys() != keys or {shake.rank for shake in shakes.values()} != set(range(len(keys))):
        raise ValueError(f"CairnConnector: of {stages} x {width} ranks these say how their KV lies: "
                         f"{sorted(shake.rank for shake in shakes.values())}")


def _together(stages, index):
    """The cache group of that number, with the layers and heads of all."""
    first = stages[0][0]
    layers = []
    for stage in stages:
        ours = stage[0].groups[index]["layers"]
        for shake in stage:
            group = shake.groups[index]
            _compare(first, shake, *((f"{name} of cache group {index}", first.groups[index][name], group[name])
                                     for name in group if name not in _OF_A_RANK),
                     (f"spec of cache group {index}", *(_without_size(one.groups[index]["spec"]) for one in (first, shake))))
            _compare(stage[0], shake, (f"layers of cache group {index}", ours, group["layers"]))
        layers += ours
        _check_heads(stage, index)
    # One stage has them in the order of one rank, whatever that is: a draft model's begin with number 0 again.
    if len(stages) > 1 and len({len(_numbers(name)) for name in layers}) == 1 and sorted(layers, key=_numbers) != layers:
        raise ValueError(f"CairnConnector: ranks have the layers of cache group {index} in another order than one rank would: "
                         f"{layers}")
    group = Group(**{**first.groups[index], "spec": unplain(first.groups[index]["spec"]), "layers": tuple(layers)})
    return group.whole(_resized(group.spec, len(layers), group.all_heads))


def _check_heads(stage, index):
    """All heads are there."""
    held = set()
    for shake in stage:
        group = shake.groups[index]
        held.update(range(group["first_head"], group["first_head"] + group["heads"]))
    if held != set(range(stage[0].groups[index]["all_heads"])):
        raise ValueError(f"CairnConnector: ranks {[shake.rank for shake in stage]} hold heads {sorted(held)} of cache group "
                         f"{index}, which has {stage[0].groups[index]['all_heads']}")


def _described(stages, index, group):
    """What all ranks say of its rotation; of the stages of a pipeline each may say another thing, as layers may."""
    said = []
    for stage in stages:
        for shake in stage:
            _compare(stage[0], shake, (f"rotation of cache group {index}",
                                       *(_without_size(one.described[index]) for one in (stage[0], shake))))
        said.append(_resized(unplain(stage[0].described[index]), group.spec.layers, group.all_heads))
    return said[0] if all(one == said[0] for one in said) else group.spec


def _place(stages, index, group, places):
    first_layer = 0
    for stage in stages:
        saved = set()
        for shake in stage:
            first_head = shake.groups[index]["first_head"]
            places[shake.rank].append(Place(group.spec.layers, first_layer, first_head not in saved))
            saved.add(first_head)
        first_layer += len(stage[0].groups[index]["layers"])


def _numbers(name):
    return [int(part) for part in name.split(".") if part.isdigit()]


def _resized(spec, layers, heads):
    """The LayerGroup, with so many of each."""
    said = plain(spec)
    return unplain({**said, "layers": layers, "planes": [{**plane, "heads": heads} for plane in said["planes"]]})


def _without_size(said):
    return {**said, "layers": 0, "planes": [{**plane, "heads": 0} for plane in said["planes"]]}


def _compare(first: Handshake, other: Handshake, *fields):
    for name, ours, theirs in fields:
        if ours != theirs:
            raise ValueError(f"CairnConnector: ranks {first.rank} and {other.rank} disagree on {name}: {ours!r}, {theirs!r}")
