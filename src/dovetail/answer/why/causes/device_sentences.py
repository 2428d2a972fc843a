"""Sentences about devices of claims: which rule leaves too few of them, and what was seen instead.

Given the blocks of one cause on the nodes of one way. Claims are called by the names that the pod gives them. Never
chooses between causes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from dovetail.allocate.index import selector_matches
from dovetail.allocate.index.pool_index import bits
from dovetail.answer.why import near_values, selector_conjuncts
from dovetail.answer.why.cause_codes import CauseCode
from dovetail.answer.why.causes.node_sentences import (
    Sentence,
    ahead,
    chosen_by,
    counted,
    names,
)
from dovetail.answer.why.obstacles.blocks import Block
from dovetail.answer.why.obstacles.node_blocks import NodeBlocks
from dovetail.answer.why.obstacles.ways import Way
from dovetail.answer.why.selector_conjuncts import Group
from dovetail.kubetypes.resource import claims as resource_claims

MOST_RULES: Final = 100  # characters of what a request asks of its devices
_DRIVER: Final = re.compile(r"""device\.driver\s*==\s*["']([^"']+)["']""")


def sentence(blocks: Sequence[Block], way: Way, obstacles: NodeBlocks) -> Sentence:
    """What these blocks, all of one cause, amount to."""
    block = blocks[0]
    what = obstacles.named(block.subject)
    where = f"{counted(len(way.nodes), 'node')} that could take it"
    match block.code:
        case CauseCode.DEVICES_BUSY:
            return _busy(block, what, way, obstacles)
        case CauseCode.DEVICES_TAINTED:
            return block.code, (
                f"{what}: devices on {where} are tainted ({block.detail}); "
                f"needs {block.need}, {block.have} without a taint ({names(way.nodes)})"
            )
        case CauseCode.POOL_INCOMPLETE:
            driver, _, pool = block.subject.partition("/")
            published, wanted = obstacles.world.slice_counts((driver, pool))
            return block.code, (
                f"pool {block.subject} is incomplete: its driver has published {published} of "
                f"{counted(wanted, 'slice')}"
            )
        case CauseCode.POOL_INVALID:
            return block.code, f"pool {block.subject} is invalid: {block.detail}"
        case CauseCode.SELECTOR:
            return _selector(block, what, way, obstacles)
        case CauseCode.TOO_MANY_DEVICES:
            return block.code, (
                f"{what} asks for {block.need} devices on one node; "
                f"no node has more than {_most(way, obstacles, block)}"
            )
        case CauseCode.CAPACITY_NOT_OFFERED:
            most = _largest(block, way, obstacles)
            return block.code, f"{what}: no device offers {block.detail}{most}"
        case CauseCode.CONSTRAINT:
            return block.code, _constraint(block, what, obstacles)
        case CauseCode.CLASS_MATCHES_NONE | CauseCode.NO_DEVICES:
            return _class(block, what, obstacles)
        case CauseCode.POOL:
            return block.code, f"{what}: the devices on {where} belong to another scheduler"
        case CauseCode.SEARCH_UNFINISHED:
            return block.code, (
                f"the search for devices on {where} was cut short after {block.have} steps"
            )
        case _:
            return block.code, f"{what}: {block.detail}"


def _busy(block: Block, what: str, way: Way, obstacles: NodeBlocks) -> Sentence:
    free = {
        name: max(
            (item.have for item in obstacles.by_node()[name] if item.code is block.code), default=0
        )
        for name in way.nodes
    }
    most, total = max(free.values()), sum(free.values())
    where = f"{counted(len(way.nodes), 'node')} that could take it{chosen_by(obstacles)}"
    asked = _asked(block, obstacles)
    if total >= block.need > most and len(way.nodes) > 1:
        return CauseCode.DEVICES_FRAGMENTED, (
            f"{what} needs {asked} on one node; {total} are free on the {where}, "
            f"but at most {most} on any of them"
        )
    on = f"the {where}"
    if len(way.nodes) == 1:
        on = f"node {way.nodes[0]}, the only one that could take it"
    have = "none is free" if not most else f"at most {most} free together"
    return block.code, f"{what} needs {asked}; {have} on {on}" + ahead(way, obstacles)


def _asked(block: Block, obstacles: NodeBlocks) -> str:
    """What a request asks for: `2 devices with profile == "3g.40gb"`."""
    option = obstacles.option_of(block.subject)
    if option is None:
        return counted(block.need, "device")
    is_all = option.allocation_mode == resource_claims.MODE_ALL
    text = f"all {block.need} devices" if is_all else counted(block.need, "device")
    rules = [
        selector_conjuncts.shortened(part)
        for selector in option.selectors
        if selector.cel is not None
        for part in selector_conjuncts.conjuncts(selector.cel.expression)
    ]
    if option.capacity is not None:
        rules += [f"{name} {value}" for name, value in option.capacity.requests.items()]
    claim = obstacles.claim_of(block.subject)
    for constraint in claim.spec.devices.constraints if claim is not None else ():
        if constraint.match_attribute:
            rules.append(f"the same {constraint.match_attribute.rpartition('/')[2]}")
        elif constraint.distinct_attribute:
            rules.append(f"different {constraint.distinct_attribute.rpartition('/')[2]}")
    listed = ", ".join(rules)
    return f"{text} with {listed}" if listed and len(listed) <= MOST_RULES else text


def _constraint(block: Block, what: str, obstacles: NodeBlocks) -> str:
    """What a constraint between devices asks, and whether any device has the attribute it compares."""
    needed = f"{what} needs {block.need} devices with {block.detail} on one node"
    claim = obstacles.claim_of(block.subject)
    constraints = claim.spec.devices.constraints if claim is not None else ()
    published = {
        name if "/" in name else f"{devices.driver}/{name}"
        for devices in obstacles.world.published()
        for name in devices.attributes
    }
    for constraint in constraints:
        attribute = constraint.match_attribute or constraint.distinct_attribute
        if attribute and attribute in block.detail and attribute not in published:
            near = near_values.nearest(attribute, published)
            meant = f"; did you mean {near}?" if near else ""
            return f"{needed}; no device has the attribute {attribute}{meant}"
    if not block.have:
        return f"{needed}; no node has such devices, in use or not"
    return f"{needed}; no node has more than {block.have}, in use or not"


def _selector(block: Block, what: str, way: Way, obstacles: NodeBlocks) -> Sentence:
    groups = _groups(block, way, obstacles)
    asked = selector_conjuncts.shortened(block.detail)
    seen = selector_conjuncts.nearest_text(block.detail, groups)
    count = sum(group.mask.bit_count() for group in groups)
    if block.have:
        return CauseCode.SELECTOR, (
            f"{what} needs {block.need} devices with `{asked}` on one node; "
            f"at most {block.have} match" + (f" ({seen})" if seen else "")
        )
    text = f"{what}: none of {counted(count, 'device')} satisfies `{asked}`"
    return CauseCode.SELECTOR, f"{text}; {seen}" if seen else text


def _largest(block: Block, way: Way, obstacles: NodeBlocks) -> str:
    """The largest of each capacity that was asked for."""
    option = obstacles.option_of(block.subject)
    asked = option.capacity.requests if option is not None and option.capacity is not None else {}
    texts = []
    for name in asked:
        sizes = [
            devices.templates[index].capacity[name].value
            for devices, mask in _groups(block, way, obstacles)
            for index in bits(mask)
            if name in devices.templates[index].capacity
        ]
        texts.append(f"{name} is at most {max(sizes)}" if sizes else f"none has {name}")
    return f"; {', '.join(texts)}" if texts else ""


def _groups(block: Block, way: Way, obstacles: NodeBlocks) -> list[Group]:
    """The devices of the request's class on all nodes of the way."""
    class_name = obstacles.class_of(block.subject)
    return [
        group
        for node in way.nodes
        for group in obstacles.devices.of_class(class_name, obstacles.world.view(node))
        if group.mask
    ]


def _most(way: Way, obstacles: NodeBlocks, block: Block) -> int:
    return max(
        (
            item.have
            for name in way.nodes
            for item in obstacles.by_node()[name]
            if item.code is block.code
        ),
        default=block.have,
    )


def _class(block: Block, what: str, obstacles: NodeBlocks) -> Sentence:
    class_name = obstacles.class_of(block.subject)
    published = list(obstacles.world.published())
    drivers = {devices.driver for devices in published}
    expressions = obstacles.class_expressions(class_name)
    wanted = [driver for text in expressions for driver in _DRIVER.findall(text)]
    missing = [driver for driver in wanted if driver not in drivers]
    if missing:
        near = near_values.nearest(missing[0], drivers)
        if near is not None:
            return CauseCode.CLASS_MATCHES_NONE, (
                f"{what}: class {class_name} selects driver {missing[0]}, which publishes nothing; "
                f"did you mean {near}?"
            )
        return CauseCode.NO_DEVICES, (
            f"{what}: no node publishes devices of driver {missing[0]}, which class {class_name} "
            "selects: the driver does not run"
        )
    if not published:
        return CauseCode.NO_DEVICES, (
            f"{what}: no driver publishes any device (there are no ResourceSlices)"
        )
    groups = [Group(devices, (1 << len(devices)) - 1) for devices in published]
    for part in (part for text in expressions for part in selector_conjuncts.conjuncts(text)):
        passed = [
            group._replace(mask=group.mask & selector_matches.selected(group.devices, (part,)))
            for group in groups
        ]
        if not any(group.mask for group in passed):
            seen = selector_conjuncts.nearest_text(part, [group for group in groups if group.mask])
            return CauseCode.CLASS_MATCHES_NONE, (
                f"{what}: class {class_name} matches no device: "
                f"`{selector_conjuncts.shortened(part)}`; {seen}"
            )
        groups = passed
    return CauseCode.CLASS_MATCHES_NONE, (
        f"{what}: class {class_name} matches too few devices (needs {block.need}, {block.have} match)"
    )
