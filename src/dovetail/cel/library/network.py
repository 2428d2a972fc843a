"""IP addresses and networks: reading them strictly, writing them canonically, what kind they are.

Given text or packed bytes; returns values or raises CelError. IPv4 inside IPv6 and scoped addresses are
refused, as are octets with leading zeros.
"""

from __future__ import annotations

import re
from typing import Final

from dovetail.cel.check.declarations import Overload, function, member
from dovetail.cel.evaluate.values import CelError, Cidr, Ip
from dovetail.cel.library import gotext

_OCTET: Final = r"0|[1-9][0-9]{0,2}"
_GROUP: Final = r"[0-9a-fA-F]{1,4}"
_BITS: Final = r"[0-9]|[1-9][0-9]{1,2}"
_MAPPED: Final = bytes(10) + b"\xff\xff"


def parse_ip(text: str) -> Ip:
    """The address a text names."""
    packed, zone = _parse(text)
    if zone:
        raise CelError(f"IP address {gotext.quoted(text)} with zone value is not allowed")
    _check_not_mapped(packed, text)
    return Ip(packed)


def parse_cidr(text: str) -> Cidr:
    """The network `address/bits` names; the address keeps its host bits."""
    address, slash, bits = text.rpartition("/")
    if not slash:
        raise CelError(f"network address parse error: {gotext.quoted(text)} has no '/'")
    packed, zone = _parse(address)
    if zone:
        raise CelError(f"network address parse error: {gotext.quoted(text)} has a zone")
    if not re.fullmatch(_BITS, bits) or int(bits) > len(packed) * 8:
        raise CelError(f"network address parse error: bad bits after slash: {gotext.quoted(bits)}")
    _check_not_mapped(packed, text)
    return Cidr(packed, int(bits))


def unpack(text: str) -> tuple[bytes, str] | None:
    """The bytes and the zone of an address, or None if the text is not an address."""
    colon, dot = text.find(":"), text.find(".")
    if colon < 0 or 0 <= dot < colon:
        packed = _ipv4(text)
        return (packed, "") if packed is not None else None
    address, percent, zone = text.partition("%")
    packed = _ipv6(address)
    if packed is None or (percent and not zone):
        return None
    return packed, zone


def _parse(text: str) -> tuple[bytes, str]:
    address = unpack(text)
    if address is None:
        raise CelError(
            f"IP Address {gotext.quoted(text)} parse error during conversion from string"
        )
    return address


def _check_not_mapped(packed: bytes, text: str) -> None:
    if packed.startswith(_MAPPED) and len(packed) == 16:
        raise CelError(f"IPv4-mapped IPv6 address {gotext.quoted(text)} is not allowed")


def _ipv4(text: str) -> bytes | None:
    octets = text.split(".")
    if len(octets) != 4 or not all(
        re.fullmatch(_OCTET, octet) and int(octet) < 256 for octet in octets
    ):
        return None
    return bytes(map(int, octets))


def _ipv6(text: str) -> bytes | None:
    head, ellipsis, tail = text.partition("::")
    if not ellipsis:
        packed = _groups(text, may_be_empty=False)
        return packed if packed is not None and len(packed) == 16 else None
    before = _groups(head, may_be_empty=True, may_end_in_ipv4=False)
    after = _groups(tail, may_be_empty=True)
    if before is None or after is None or len(before) + len(after) > 14:
        return None
    return before.ljust(16 - len(after), b"\0") + after


def _groups(text: str, *, may_be_empty: bool, may_end_in_ipv4: bool = True) -> bytes | None:
    if not text:
        return b"" if may_be_empty else None
    *groups, final = text.split(":")
    packed = b""
    for group in groups:
        if not re.fullmatch(_GROUP, group):
            return None
        packed += int(group, 16).to_bytes(2, "big")
    if "." in final and may_end_in_ipv4:
        embedded = _ipv4(final)
        return None if embedded is None else packed + embedded
    return packed + int(final, 16).to_bytes(2, "big") if re.fullmatch(_GROUP, final) else None


def ip_text(address: Ip) -> str:
    """The canonical form: lower case, the longest run of zero groups compressed."""
    if len(address.packed) == 4:
        return ".".join(map(str, address.packed))
    groups = [int.from_bytes(address.packed[at : at + 2], "big") for at in range(0, 16, 2)]
    start, end = _longest_zeros(groups)
    if end - start < 2:
        return ":".join(f"{group:x}" for group in groups)
    head, tail = groups[:start], groups[end:]
    return f"{':'.join(f'{group:x}' for group in head)}::{':'.join(f'{group:x}' for group in tail)}"


def _longest_zeros(groups: list[int]) -> tuple[int, int]:
    best = (0, 0)
    for start in range(8):
        end = start
        while end < 8 and groups[end] == 0:
            end += 1
        if end - start > best[1] - best[0]:
            best = (start, end)
    return best


def cidr_text(network: Cidr) -> str:
    """The address, a slash, the prefix length."""
    return f"{ip_text(Ip(network.packed))}/{network.prefix_length}"


def is_ip(text: str) -> bool:
    """Whether `parse_ip` accepts the text."""
    try:
        parse_ip(text)
    except CelError:
        return False
    return True


def is_cidr(text: str) -> bool:
    """Whether `parse_cidr` accepts the text."""
    try:
        parse_cidr(text)
    except CelError:
        return False
    return True


def is_canonical(text: str) -> bool:
    """Whether an address is in its canonical form; an error if it is not an address."""
    return ip_text(parse_ip(text)) == text


def family(address: Ip) -> int:
    """4 or 6."""
    return 4 if len(address.packed) == 4 else 6


def is_unspecified(address: Ip) -> bool:
    """0.0.0.0 or ::"""
    return not any(address.packed)


def is_loopback(address: Ip) -> bool:
    """127.0.0.0/8 or ::1"""
    return (
        address.packed[0] == 127
        if len(address.packed) == 4
        else address.packed == bytes(15) + b"\x01"
    )


def is_link_local_multicast(address: Ip) -> bool:
    """224.0.0.0/24, or ff02::/16 with any flags"""
    if len(address.packed) == 4:
        return address.packed[:3] == b"\xe0\0\0"
    return address.packed[0] == 0xFF and address.packed[1] & 0x0F == 2


def is_link_local_unicast(address: Ip) -> bool:
    """169.254.0.0/16 or fe80::/10"""
    if len(address.packed) == 4:
        return address.packed[:2] == b"\xa9\xfe"
    return address.packed[0] == 0xFE and address.packed[1] & 0xC0 == 0x80


def is_global_unicast(address: Ip) -> bool:
    """Any address of one host that is reachable beyond its link; private ones count."""
    is_multicast = (
        address.packed[0] & 0xF0 == 0xE0 if len(address.packed) == 4 else address.packed[0] == 0xFF
    )
    special = is_unspecified(address) or is_loopback(address) or is_link_local_unicast(address)
    return not (is_multicast or special or address.packed == b"\xff" * 4)


def contains_ip(network: Cidr, address: Ip) -> bool:
    """Whether an address of the same family is in the network."""
    return len(network.packed) == len(address.packed) and _masked(
        network.packed, network.prefix_length
    ) == _masked(address.packed, network.prefix_length)


def contains_cidr(network: Cidr, other: Cidr) -> bool:
    """Whether the whole of another network is in this one."""
    return network.prefix_length <= other.prefix_length and contains_ip(network, Ip(other.packed))


def masked(network: Cidr) -> Cidr:
    """The network with its host bits cleared."""
    return Cidr(_masked(network.packed, network.prefix_length), network.prefix_length)


def _masked(packed: bytes, bits: int) -> bytes:
    host_bits = len(packed) * 8 - bits
    return (int.from_bytes(packed, "big") >> host_bits << host_bits).to_bytes(len(packed), "big")


def _contains_ip_text(network: Cidr, text: str) -> bool:
    return contains_ip(network, parse_ip(text))


def _contains_cidr_text(network: Cidr, text: str) -> bool:
    return contains_cidr(network, parse_cidr(text))


def _ip_of(network: Cidr) -> Ip:
    return Ip(network.packed)


def _prefix_length(network: Cidr) -> int:
    return network.prefix_length


OVERLOADS: tuple[Overload, ...] = (
    function("ip", "string_to_ip", "string -> ip", parse_ip),
    member("family", "ip_family", "ip -> int", family),
    function("ip.isCanonical", "ip_is_canonical", "string -> bool", is_canonical),
    member("isUnspecified", "ip_is_unspecified", "ip -> bool", is_unspecified),
    member("isLoopback", "ip_is_loopback", "ip -> bool", is_loopback),
    member(
        "isLinkLocalMulticast", "ip_is_link_local_multicast", "ip -> bool", is_link_local_multicast
    ),
    member("isLinkLocalUnicast", "ip_is_link_local_unicast", "ip -> bool", is_link_local_unicast),
    member("isGlobalUnicast", "ip_is_global_unicast", "ip -> bool", is_global_unicast),
    function("isIP", "is_ip", "string -> bool", is_ip),
    function("string", "ip_to_string", "ip -> string", ip_text),
    function("cidr", "string_to_cidr", "string -> cidr", parse_cidr),
    member("containsIP", "cidr_contains_ip_string", "cidr, string -> bool", _contains_ip_text),
    member("containsIP", "cidr_contains_ip_ip", "cidr, ip -> bool", contains_ip),
    member(
        "containsCIDR", "cidr_contains_cidr_string", "cidr, string -> bool", _contains_cidr_text
    ),
    member("containsCIDR", "cidr_contains_cidr", "cidr, cidr -> bool", contains_cidr),
    member("ip", "cidr_ip", "cidr -> ip", _ip_of),
    member("prefixLength", "cidr_prefix_length", "cidr -> int", _prefix_length),
    member("masked", "cidr_masked", "cidr -> cidr", masked),
    function("isCIDR", "is_cidr", "string -> bool", is_cidr),
    function("string", "cidr_to_string", "cidr -> string", cidr_text),
)
