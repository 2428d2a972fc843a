"""Literals for expressions: every kind, every spelling, the edges; and pools of texts that functions read."""

from __future__ import annotations

import random
from typing import Final

from tests.generators import devices, quantities, versions

INTS: Final = (
    "0", "1", "-1", "2", "3", "7", "10", "-7", "40", "80", "255", "1024", "0x1F", "-0x10", "2147483648",
    "9007199254740993",
    "9223372036854775807", "-9223372036854775808", "0xFFFF", "00", "100",
)  # fmt: skip
UINTS: Final = (
    "0u",
    "1u",
    "2u",
    "3u",
    "7U",
    "0xFFu",
    "80u",
    "18446744073709551615u",
    "9223372036854775808u",
    "10u",
)
DOUBLES: Final = (
    "0.0", "-0.0", "1.0", "1.5", "-2.5", "3.14", ".5", "1e3", "1E-3", "1e308", "-1e308", "5e-324", "0.1",
    "9007199254740993.0",
    "9.223372036854775807e18", "1.8446744073709552e19", "1e21", "123456789.125", "80.0", "2.0", "double('NaN')",
    "double('Infinity')",
    "double('-inf')", "1e-7", "100000000000000000000.0",
)  # fmt: skip
STRINGS: Final = (
    '""', "''", '"a"', "'b'", '"model"', '"memory"', '"gpu.example.com"', '"H100"', r'"\n\t\\\""',
    r'"\u00e4\U0001F600"', r'"\x41\101"',
    'r"\\d+\\."', "R'raw\\'", '"""triple "quoted" text"""', "'''it's'''", '"日本"', '"äöü"', '"a,b,,c"', '"x"',
    '"abcabcabc"', '" pad "',
    r'"\a\b\f\r\v\?\`"', '"%d"', '"1"', '"true"', '"1.5"', '"aaaaaaaaaaaaaaaaaaaaaaaaaaaa!"', '"GPU-1"',
    '"e\u0301"', "r'''a\nb'''",
)  # fmt: skip
BYTES: Final = (
    'b""',
    "b'abc'",
    r'b"\x00\xff"',
    r"b'\377'",
    "b'ä'",
    "br'\\n'",
    'b"""x"y"""',
    "b'H100'",
    "B'q'",
    "rb'z'",
)
DURATIONS: Final = (
    "1s",
    "1h30m",
    "-5m",
    "0s",
    "1.5h",
    "100ms",
    "1us",
    "1ns",
    "24h",
    "2562047h47m16.854775807s",
    "3000000h",
    "1d",
    "",
    "1",
    "-",
    "h",
)
TIMESTAMPS: Final = (
    "2024-02-29T12:30:45Z", "1970-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999999Z",
    "2023-06-01T00:00:00+05:30",
    "2024-12-31T23:59:59.123456Z", "1969-07-20T20:17:40-04:00", "2024-02-30T00:00:00Z", "2024-01-01", "now",
    "10000-01-01T00:00:00Z",
    "2024-01-01T24:00:00Z", "2024-01-01t00:00:00z", "2016-12-31T23:59:60Z",
)  # fmt: skip
ZONES: Final = (
    "UTC",
    "",
    "America/New_York",
    "Asia/Kolkata",
    "+02:00",
    "-11:30",
    "02:00",
    "Nowhere/Land",
    "Europe/Berlin",
    "+25:00",
    "local",
)
REGEXES: Final = (
    "^H100", "[0-9]+", r"\\d{1,3}", "(a|b)*c", "^$", ".*", "(?i)h100", "a.c", "x{2,5}", "[[:alpha:]]+",
    r"\\pL+", r"\\bGPU\\b", "(?s).+",
    "^[a-z]+(-[a-z0-9]+)*$", "(", "[z-a]", "a{1001}", r"(?P<n>a)\\d", r"\\1", "(?=a)", "a**", "日", r"\\x41",
    r"\\u0041", "", "^a|b$", "(?U)a+",
    r"\\C", r"\\Aab\\z", r"\\Q.\\E", "(?m)^b", "[^,]+", "(a+)+$", r"\\p{Greek}", r"\\pN", "[[:word:]]", "a|",
    r"[\\w.-]+",
)  # fmt: skip
IPS: Final = (
    "10.0.0.1", "127.0.0.1", "0.0.0.0", "255.255.255.255", "169.254.1.1", "224.0.0.1", "::", "::1", "fe80::1",
    "ff02::1", "2001:db8::1",
    "2001:DB8:0:0::1", "::ffff:10.0.0.1", "fe80::1%eth0", "10.0.0", "010.0.0.1", "1.2.3.4.5", "", "a",
    "2001:db8::12345", "::1.2.3.4",
)  # fmt: skip
CIDRS: Final = (
    "10.0.0.0/8", "10.0.0.1/8", "0.0.0.0/0", "192.168.1.0/24", "10.0.0.1/32", "::/0", "2001:db8::/32",
    "2001:db8::1/128", "fe80::/10", "10.0.0.0/33",
    "10.0.0.0", "10.0.0.0/08", "10.0.0.0/-1", "::ffff:10.0.0.0/104", "", "10.0.0.0/8/8", "fe80::%1/64", "10.0.0.0/ 8",
)  # fmt: skip
URLS: Final = (
    "https://example.com", "https://example.com:8080/a%20b/c?x=1&x=2&y#f", "http://[::1]:80/",
    "http://user:pw@h/p", "/only/path", "mailto:a@b",
    "https://h?a=b;c", "http://h/%zz", "ht tp://x", "http://[::1", "*", "", "a/b", "https://ex.com/ä?ü=%C3",
    "HTTP://H/p//q/../r", "http://h:x/", "//h/p",
    "https://h/?a&b=&=c", "http://a b/", "https://h/p?x=%41+b", "file:///etc", "https://1.2.3.4:0", "http://h/p?%zz=1",
)  # fmt: skip
FORMATS: Final = (
    "byte", "date", "datetime", "dns1035Label", "dns1035LabelPrefix", "dns1123Label", "dns1123LabelPrefix",
    "dns1123Subdomain",
    "dns1123SubdomainPrefix", "labelValue", "qualifiedName", "uri", "uuid",
)  # fmt: skip
FORMATTING: Final = (
    "%s",
    "%d",
    "%s %s",
    "%.2f",
    "%e",
    "%x",
    "%X",
    "%b",
    "%o",
    "%%",
    "%s and %d",
    "%f",
    "%.0f",
    "%.10e",
    "%q",
    "%",
    "plain",
    "%5d",
    "%.f",
)
TYPES: Final = (
    "int", "uint", "double", "string", "bytes", "bool", "list", "map", "type", "null_type", "google.protobuf.Duration",
    "google.protobuf.Timestamp", "optional_type", "net.IP",
    "type(device)", "dyn",
)  # fmt: skip
DATES: Final = (
    "getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear", "getFullYear", "getHours", "getMilliseconds",
    "getMinutes", "getMonth", "getSeconds",
)  # fmt: skip
CLOCKS: Final = ("getHours", "getMinutes", "getSeconds", "getMilliseconds")
AUTHZ: Final = (
    "path",
    "group",
    "resource",
    "namespace",
    "name",
    "subresource",
    "check",
    "fieldSelector",
    "labelSelector",
)
DECISIONS: Final = ("allowed", "reason", "error", "errored")

_PLAIN: Final = {
    "type": TYPES, "format": FORMATS, "date": DATES, "clock": CLOCKS, "authz": AUTHZ, "decision": DECISIONS,
    "index": ("0", "0", "1", "2", "-1", "5", "0u", "1.0", "dyn(1)"),
    "small": ("0", "1", "2", "3", "5", "-1", "12", "30"),
}  # fmt: skip
_QUOTED: Final = {
    "duration": DURATIONS, "timestamp": TIMESTAMPS, "zone": ZONES, "regex": REGEXES, "ip": IPS, "cidr": CIDRS,
    "url": URLS,
    "formatname": (*FORMATS, "nonsense", ""), "formatting": FORMATTING,
}  # fmt: skip


def pooled(pool: str, rng: random.Random) -> str:
    """A literal out of the named pool."""
    if pool in _PLAIN:
        return rng.choice(_PLAIN[pool])
    if pool == "quantity":
        return f'"{_safe(quantities.text(rng))}"'
    if pool in ("string", "int"):
        return literal(pool, rng)
    if pool == "version":
        return f'"{_safe(versions.version(rng))}"'
    return f'"{rng.choice(_QUOTED[pool])}"'


def literal(name: str, rng: random.Random) -> str:
    """A literal, or the shortest call, of a plain type."""
    match name:
        case "int":
            return rng.choice(INTS) if rng.random() < 0.6 else str(rng.randint(0, 12))
        case "uint":
            return rng.choice(UINTS)
        case "double":
            return rng.choice(DOUBLES)
        case "string":
            return (
                quoted(rng.choice(devices.STRINGS)) if rng.random() < 0.35 else rng.choice(STRINGS)
            )
        case "bytes":
            return rng.choice(BYTES)
        case "bool":
            return rng.choice(("true", "false"))
        case "null":
            return "null"
        case "type":
            return rng.choice(TYPES)
        case "dyn":
            return literal(
                rng.choice(("int", "uint", "double", "string", "bool", "null", "bytes")), rng
            )
        case "format":
            return f"format.{rng.choice(FORMATS)}()"
        case "duration" | "timestamp" | "ip" | "cidr" | "url" | "quantity":
            return f"{name}({_mostly_good(name, rng)})"
        case "semver":
            return f'semver("{versions.valid(rng)}")'
    raise AssertionError(name)


def quoted(text: str) -> str:
    """The text as a string literal."""
    made = "".join(_escaped(letter) for letter in text)
    return f'"{made}"'


def _mostly_good(name: str, rng: random.Random) -> str:
    if name == "quantity":
        return f'"{quantities.quantity(rng)}"'
    pool = _QUOTED[name]
    return f'"{rng.choice(pool[:7])}"' if rng.random() < 0.85 else f'"{rng.choice(pool)}"'


def _escaped(letter: str) -> str:
    if letter in '"\\':
        return "\\" + letter
    return letter if letter.isprintable() else f"\\u{ord(letter):04x}"


def _safe(text: str) -> str:
    return "".join(_escaped(letter) for letter in text)
