"""IP addresses and networks. Upstream gave every expected value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.cel import ERROR, Case, assert_same, call, cidr, ip, listed

CASES: list[Case] = [
    ("ip", ("1.2.3.4",), ip("1.2.3.4")),
    ("ip", ("1..2.3",), ERROR),
    ("ip", ("239.1.1.1",), ip("239.1.1.1")),
    ("ip", ("::ffff:1.2.3.4",), ERROR),
    ("ip", ("1:2:3:4:5:6:1.2.3.4",), ip("1:2:3:4:5:6:102:304")),
    ("ip", ("%eth0",), ERROR),
    ("ip", ("2001:0db8::0001",), ip("2001:db8::1")),
    ("ip", ("::1:",), ERROR),
    ("ip", ("64:ff9b::1.2.3.4",), ip("64:ff9b::102:304")),
    ("ip", (cidr("10.0.0.0/32"),), ip("10.0.0.0")),
    ("isIP", ("1.2.3.4",), True),
    ("isIP", ("..",), False),
    ("isIP", ("169.254.1.1",), True),
    ("isIP", ("00.0.0.0",), False),
    ("isIP", ("1:2:3:4:5:6:7:8:9",), False),
    ("isIP", ("1:2:3:4:5:6::1.2.3.4",), False),
    ("isIP", ("febf::1",), True),
    ("isIP", ("2001:db8:0:0:1:0:0:1",), True),
    ("isIP", ("1:",), False),
    ("isIP", ("::ffff:0:0",), False),
    ("ip.isCanonical", ("1.2.3.4",), True),
    ("ip.isCanonical", ("..",), ERROR),
    ("ip.isCanonical", ("169.254.1.1",), True),
    ("ip.isCanonical", ("00.0.0.0",), ERROR),
    ("ip.isCanonical", ("1:2:3:4:5:6:7:8:9",), ERROR),
    ("ip.isCanonical", ("1:2:3:4:5:6::1.2.3.4",), ERROR),
    ("ip.isCanonical", ("febf::1",), True),
    ("ip.isCanonical", ("2001:db8:0:0:1:0:0:1",), False),
    ("ip.isCanonical", ("1:",), ERROR),
    ("ip.isCanonical", ("::ffff:0:0",), ERROR),
    ("family", (ip("1.2.3.4"),), 4),
    ("family", (ip("127.0.0.1"),), 4),
    ("family", (ip("224.0.1.1"),), 4),
    ("family", (ip("100.64.0.1"),), 4),
    ("family", (ip("::102:304"),), 6),
    ("family", (ip("1:0:3:4:5:6:7:8"),), 6),
    ("family", (ip("febf::1"),), 6),
    ("family", (ip("ff01::1"),), 6),
    ("family", (ip("2001:db8:0:1:1:1:1:1"),), 6),
    ("family", (ip("1:0:0:2::3"),), 6),
    ("isUnspecified", (ip("1.2.3.4"),), False),
    ("isUnspecified", (ip("127.0.0.1"),), False),
    ("isUnspecified", (ip("224.0.1.1"),), False),
    ("isUnspecified", (ip("100.64.0.1"),), False),
    ("isUnspecified", (ip("::102:304"),), False),
    ("isUnspecified", (ip("1:0:3:4:5:6:7:8"),), False),
    ("isUnspecified", (ip("febf::1"),), False),
    ("isUnspecified", (ip("ff01::1"),), False),
    ("isUnspecified", (ip("2001:db8:0:1:1:1:1:1"),), False),
    ("isUnspecified", (ip("1:0:0:2::3"),), False),
    ("isLoopback", (ip("1.2.3.4"),), False),
    ("isLoopback", (ip("127.0.0.1"),), True),
    ("isLoopback", (ip("224.0.1.1"),), False),
    ("isLoopback", (ip("100.64.0.1"),), False),
    ("isLoopback", (ip("::102:304"),), False),
    ("isLoopback", (ip("1:0:3:4:5:6:7:8"),), False),
    ("isLoopback", (ip("febf::1"),), False),
    ("isLoopback", (ip("ff01::1"),), False),
    ("isLoopback", (ip("2001:db8:0:1:1:1:1:1"),), False),
    ("isLoopback", (ip("1:0:0:2::3"),), False),
    ("isLinkLocalMulticast", (ip("1.2.3.4"),), False),
    ("isLinkLocalMulticast", (ip("127.0.0.1"),), False),
    ("isLinkLocalMulticast", (ip("224.0.1.1"),), False),
    ("isLinkLocalMulticast", (ip("100.64.0.1"),), False),
    ("isLinkLocalMulticast", (ip("::102:304"),), False),
    ("isLinkLocalMulticast", (ip("1:0:3:4:5:6:7:8"),), False),
    ("isLinkLocalMulticast", (ip("febf::1"),), False),
    ("isLinkLocalMulticast", (ip("ff01::1"),), False),
    ("isLinkLocalMulticast", (ip("2001:db8:0:1:1:1:1:1"),), False),
    ("isLinkLocalMulticast", (ip("1:0:0:2::3"),), False),
    ("isLinkLocalUnicast", (ip("1.2.3.4"),), False),
    ("isLinkLocalUnicast", (ip("127.0.0.1"),), False),
    ("isLinkLocalUnicast", (ip("224.0.1.1"),), False),
    ("isLinkLocalUnicast", (ip("100.64.0.1"),), False),
    ("isLinkLocalUnicast", (ip("::102:304"),), False),
    ("isLinkLocalUnicast", (ip("1:0:3:4:5:6:7:8"),), False),
    ("isLinkLocalUnicast", (ip("febf::1"),), True),
    ("isLinkLocalUnicast", (ip("ff01::1"),), False),
    ("isLinkLocalUnicast", (ip("2001:db8:0:1:1:1:1:1"),), False),
    ("isLinkLocalUnicast", (ip("1:0:0:2::3"),), False),
    ("isGlobalUnicast", (ip("1.2.3.4"),), True),
    ("isGlobalUnicast", (ip("127.0.0.1"),), False),
    ("isGlobalUnicast", (ip("224.0.1.1"),), False),
    ("isGlobalUnicast", (ip("100.64.0.1"),), True),
    ("isGlobalUnicast", (ip("::102:304"),), True),
    ("isGlobalUnicast", (ip("1:0:3:4:5:6:7:8"),), True),
    ("isGlobalUnicast", (ip("febf::1"),), False),
    ("isGlobalUnicast", (ip("ff01::1"),), False),
    ("isGlobalUnicast", (ip("2001:db8:0:1:1:1:1:1"),), True),
    ("isGlobalUnicast", (ip("1:0:0:2::3"),), True),
    ("string", (ip("1.2.3.4"),), "1.2.3.4"),
    ("string", (ip("169.254.1.1"),), "169.254.1.1"),
    ("string", (ip("192.168.1.1"),), "192.168.1.1"),
    ("string", (ip("::102:304"),), "::102:304"),
    ("string", (ip("1::102:304"),), "1::102:304"),
    ("string", (ip("ff12::1"),), "ff12::1"),
    ("string", (ip("2001:db8:0:1:1:1:1:1"),), "2001:db8:0:1:1:1:1:1"),
    (
        "string",
        (ip("abcd:ef01:2345:6789:abcd:ef01:2345:6789"),),
        "abcd:ef01:2345:6789:abcd:ef01:2345:6789",
    ),
    ("string", (cidr("10.0.0.0/32"),), "10.0.0.0/32"),
    ("string", (cidr("192.168.1.128/25"),), "192.168.1.128/25"),
    ("cidr", ("10.0.0.0/8",), cidr("10.0.0.0/8")),
    ("cidr", ("10.0.0.0/32",), cidr("10.0.0.0/32")),
    ("cidr", ("10.0.0.0/+8",), ERROR),
    ("cidr", ("10.0.0.0",), ERROR),
    ("cidr", ("10.0.0.0/a",), ERROR),
    ("cidr", ("2001:db8::/32",), cidr("2001:db8::/32")),
    ("cidr", ("::ffff:1.2.3.4/96",), ERROR),
    ("cidr", ("1.2.3/8",), ERROR),
    ("cidr", ("192.168.1.128/25",), cidr("192.168.1.128/25")),
    ("cidr", ("10.0.0.0/1",), cidr("10.0.0.0/1")),
    ("isCIDR", ("10.0.0.0/8",), True),
    ("isCIDR", ("10.0.0.0/32",), True),
    ("isCIDR", ("10.0.0.0/+8",), False),
    ("isCIDR", ("10.0.0.0",), False),
    ("isCIDR", ("10.0.0.0/a",), False),
    ("isCIDR", ("2001:db8::/32",), True),
    ("isCIDR", ("::ffff:1.2.3.4/96",), False),
    ("isCIDR", ("1.2.3/8",), False),
    ("isCIDR", ("192.168.1.128/25",), True),
    ("isCIDR", ("10.0.0.0/1",), True),
    ("prefixLength", (cidr("10.0.0.0/8"),), 8),
    ("prefixLength", (cidr("10.1.2.3/8"),), 8),
    ("prefixLength", (cidr("10.0.0.0/0"),), 0),
    ("prefixLength", (cidr("::/0"),), 0),
    ("prefixLength", (cidr("2001:db8::/32"),), 32),
    ("prefixLength", (cidr("fe80::1/64"),), 64),
    ("prefixLength", (cidr("192.168.1.128/25"),), 25),
    ("prefixLength", (cidr("192.168.1.0/24"),), 24),
    ("prefixLength", (cidr("255.255.255.255/31"),), 31),
    ("prefixLength", (cidr("2001:db8:ffff::/33"),), 33),
    ("masked", (cidr("10.0.0.0/8"),), cidr("10.0.0.0/8")),
    ("masked", (cidr("10.1.2.3/8"),), cidr("10.0.0.0/8")),
    ("masked", (cidr("10.0.0.0/0"),), cidr("0.0.0.0/0")),
    ("masked", (cidr("::/0"),), cidr("::/0")),
    ("masked", (cidr("2001:db8::/32"),), cidr("2001:db8::/32")),
    ("masked", (cidr("fe80::1/64"),), cidr("fe80::/64")),
    ("masked", (cidr("192.168.1.128/25"),), cidr("192.168.1.128/25")),
    ("masked", (cidr("192.168.1.0/24"),), cidr("192.168.1.0/24")),
    ("masked", (cidr("255.255.255.255/31"),), cidr("255.255.255.254/31")),
    ("masked", (cidr("2001:db8:ffff::/33"),), cidr("2001:db8:8000::/33")),
    ("containsIP", (cidr("10.0.0.0/8"), "10.0.0.1"), True),
    ("containsIP", (cidr("10.1.2.3/8"), "2001:db8::5"), False),
    ("containsIP", (cidr("10.0.0.0/0"), "::ffff:10.0.0.1"), ERROR),
    ("containsIP", (cidr("::/0"), ip("10.0.0.0")), False),
    ("containsIP", (cidr("2001:db8::/32"), ip("192.168.1.200")), False),
    ("containsIP", (cidr("fe80::1/64"), "10.0.0.1"), False),
    ("containsIP", (cidr("192.168.1.128/25"), "2001:db8::5"), False),
    ("containsIP", (cidr("192.168.1.0/24"), "::ffff:10.0.0.1"), ERROR),
    ("containsIP", (cidr("255.255.255.255/31"), ip("10.0.0.0")), False),
    ("containsIP", (cidr("2001:db8:ffff::/33"), ip("192.168.1.200")), False),
    ("containsCIDR", (cidr("10.0.0.0/8"), cidr("10.0.0.0/8")), True),
    ("containsCIDR", (cidr("10.1.2.3/8"), cidr("fe80::1/64")), False),
    ("containsCIDR", (cidr("10.0.0.0/0"), "10.0.0.0/8"), True),
    ("containsCIDR", (cidr("::/0"), cidr("10.0.0.0/32")), False),
    ("containsCIDR", (cidr("2001:db8::/32"), cidr("10.0.0.0/1")), False),
    ("containsCIDR", (cidr("fe80::1/64"), cidr("10.0.0.0/8")), False),
    ("containsCIDR", (cidr("192.168.1.128/25"), cidr("fe80::1/64")), False),
    ("containsCIDR", (cidr("192.168.1.0/24"), "10.0.0.0/8"), False),
    ("containsCIDR", (cidr("255.255.255.255/31"), cidr("10.0.0.0/32")), False),
    ("containsCIDR", (cidr("2001:db8:ffff::/33"), cidr("10.0.0.0/1")), False),
]


@pytest.mark.parametrize(("name", "arguments", "expected"), CASES)
def test_an_address_function_answers_as_upstream(
    name: str, arguments: tuple[Any, ...], expected: Any
) -> None:
    assert_same(call(name, *arguments), expected)


ADDRESSES = listed(
    "1.2.3.4|0.0.0.0|255.255.255.255|256.1.1.1|01.2.3.4|1.2.3.04|1.2.3|1.2.3.4.5|1.2.3.|..|1..2.3|.1.2.3|"
    "1.2.3.4 | 1.2.3.4|1.2.3.a|0x1.2.3.4|127.0.0.1|127.255.0.1|169.254.1.1|224.0.0.1|224.0.1.1|239.1.1.1|"
    "10.0.0.1|192.168.1.1|100.64.0.1|1.2.3.4%eth0|1.2.3.1000|00.0.0.0|::|::1|1::|::ffff:1.2.3.4|::ffff:0102:0304|"
    "::1.2.3.4|1:2:3:4:5:6:7:8|"
    "1:2:3:4:5:6:7|1:2:3:4:5:6:7:8:9|1:2:3:4:5:6:7::|::2:3:4:5:6:7:8|1::3:4:5:6:7:8|1:2:3:4::5:6:7:8|"
    "::1:2:3:4:5:6:7:8|1:2:3:4:5:6:1.2.3.4|1:2:3:4:5:6:7:1.2.3.4|1:2:3:4:5:1.2.3.4|1::1.2.3.4|1:2:3:4:5:6::1.2.3.4|"
    "::1.2.3.04|::1.2.3|1.2.3.4::|fe80::1|fe80::1%eth0|fe80::1%|%eth0|fe80::1%a.b:c|febf::1|fec0::1|ff02::1|ff12::1|"
    "ff01::1|ff05::1|2001:db8::1|2001:DB8::1|2001:0db8::0001|2001:db8:0:0:1:0:0:1|2001:db8:0:1:1:1:1:1|"
    "0:0:0:0:0:0:0:0|0:0:0:0:0:0:0:1|12345::|g::|1:::2|:::|:|1:|::1:|:1|1::2::3|fc00::1|1:2||a|1|::ffff:0:0|"
    "::fffe:1.2.3.4|64:ff9b::1.2.3.4|::FFFF:1.2.3.4|0:0:0:0:0:ffff:1.2.3.4|1:0:0:2:0:0:0:3|1:0:0:2:3:0:0:4|"
    "\u0661.2.3.4|abcd:ef01:2345:6789:abcd:ef01:2345:6789|ABCD::"
)
NETWORKS = listed(
    "10.0.0.0/8|10.1.2.3/8|10.0.0.0/0|10.0.0.0/32|10.0.0.0/33|10.0.0.0/-1|10.0.0.0/+8|10.0.0.0/08|10.0.0.0/|10.0.0.0|/8|"
    "10.0.0.0/8/8|10.0.0.0/ 8|10.0.0.0/a|10.0.0.0/00|::/0|2001:db8::/32|2001:db8::1/128|2001:db8::1/129|"
    "::ffff:1.2.3.4/96|::ffff:1.2.3.4/104|fe80::1%eth0/64|fe80::1/64|1.2.3/8|10.0.0.0/99999999999999999999||"
    "192.168.1.128/25|192.168.1.0/24|10.0.0.0/\u0668|10.0.0.0/1|255.255.255.255/31|2001:db8:ffff::/33|::1/127"
)
PROBES = listed(
    "10.0.0.1|11.0.0.1|10.0.0.0|::|::1|2001:db8::5|2001:db9::|1.2.3|192.168.1.200|192.168.1.1|255.255.255.254|"
    "::ffff:10.0.0.1|fe80::1%eth0|127.0.0.1|2001:db8:8000::"
)
KINDS = (
    *(
        "family",
        "isUnspecified",
        "isLoopback",
        "isLinkLocalMulticast",
        "isLinkLocalUnicast",
        "isGlobalUnicast",
    ),
    "string",
)


def inputs() -> Iterator[tuple[Any, ...]]:
    """Calls to compare with upstream beyond the table."""
    for text in ADDRESSES:
        for name in ("ip", "isIP", "ip.isCanonical"):
            yield name, text
        address = call("ip", text)
        if address is not ERROR:
            for name in KINDS:
                yield name, address
    for text in NETWORKS:
        yield "cidr", text
        yield "isCIDR", text
    networks = [value for value in (call("cidr", text) for text in NETWORKS) if value is not ERROR]
    for network in networks:
        yield from _questions(network, networks)


def _questions(network: Any, others: list[Any]) -> Iterator[tuple[Any, ...]]:
    for name in ("ip", "prefixLength", "masked", "string"):
        yield name, network
    for text in PROBES:
        yield "containsIP", network, text
        if call("isIP", text):
            yield "containsIP", network, ip(text)
    for other in (*others, "10.0.0.0/8", "bad", "::/0", "10.0.0.0/33"):
        yield "containsCIDR", network, other
