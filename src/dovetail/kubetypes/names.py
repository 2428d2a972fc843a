"""Which texts Kubernetes accepts as names: DNS labels and subdomains, label keys and values, attribute names.

Given a text, answers with what is wrong or None. Regular expressions are compiled once and run on bounded
text; answers for names that repeat are remembered.
"""

import ipaddress
import re
from typing import Final

from dovetail import cache
from dovetail.kubetypes import field_errors
from dovetail.kubetypes.field_errors import Problems

MAX_LABEL: Final = 63  # DNS-1123 label; label value; name part of a label key
MAX_SUBDOMAIN: Final = 253  # DNS-1123 subdomain
MAX_DRIVER: Final = (
    63  # DriverNameMaxLength, resource.k8s.io/v1; also the domain of an attribute name
)
MAX_IDENTIFIER: Final = 32  # DeviceMaxIDLength, resource.k8s.io/v1
MAX_GENERATED_BASE: Final = 58  # apimachinery: what stays of generateName before five characters

is_label_shaped: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?").fullmatch
_is_subdomain_shaped: Final = re.compile(
    r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*"
).fullmatch
_is_key_shaped: Final = re.compile(r"(?:[A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]").fullmatch
_is_identifier: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*").fullmatch
_is_reason: Final = re.compile(r"[A-Za-z](?:[A-Za-z0-9_,:]*[A-Za-z0-9_])?").fullmatch
_is_uuid: Final = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
).fullmatch
_NUMBER = r"(?:0|[1-9][0-9]*)"
_PRERELEASE = r"(?:0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)"
_is_semver: Final = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-{_PRERELEASE}(?:\.{_PRERELEASE})*)?"
    r"(?:\+[0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*)?"
).fullmatch

LABEL_RULE: Final = (
    "must be a DNS label: lower-case letters, digits and '-', at most 63, no '-' at either end"
)
SUBDOMAIN_RULE: Final = "must be a DNS subdomain: DNS labels joined by '.', at most 253 characters"
KEY_RULE: Final = (
    "must be a label key: letters, digits, '-', '_', '.', at most 63, "
    "optionally after a DNS prefix and '/'"
)
VALUE_RULE: Final = (
    "must be a label value: empty, or letters, digits, '-', '_', '.', at most 63, alphanumeric ends"
)
IDENTIFIER_RULE: Final = "must be an identifier: a letter or '_', then letters, digits, '_'"
QUALIFIED_RULE: Final = "must be a domain and a name joined by '/'"


def is_dns_label(text: str) -> bool:
    """Whether the text is a DNS-1123 label."""
    return len(text) <= MAX_LABEL and is_label_shaped(text) is not None


def is_dns_subdomain(text: str) -> bool:
    """Whether the text is a DNS-1123 subdomain."""
    return len(text) <= MAX_SUBDOMAIN and _is_subdomain_shaped(text) is not None


@cache.remembered(8192)
def is_label_key(text: str) -> bool:
    """Whether the text can be a label key, a condition type, a taint key."""
    prefix, slash, name = text.rpartition("/")
    if slash and not is_dns_subdomain(prefix):
        return False
    return len(name) <= MAX_LABEL and _is_key_shaped(name) is not None


@cache.remembered(8192)
def is_label_value(text: str) -> bool:
    """Whether the text can be a label value."""
    return not text or (len(text) <= MAX_LABEL and _is_key_shaped(text) is not None)


@cache.remembered(1024)
def are_attribute_names(texts: tuple[str, ...]) -> bool:
    """Whether all can name attributes or capacities; devices of a kind have the same names in the same order."""
    return not any(map(_attribute_name_faults, texts))


@cache.remembered(1024)
def are_dns_labels(texts: tuple[str, ...]) -> bool:
    """Whether all are DNS labels; counters of a kind of device have the same names in the same order."""
    return all(map(is_dns_label, texts))


def is_condition_reason(text: str) -> bool:
    """Whether the text can be the reason of a condition."""
    return _is_reason(text) is not None


def is_uuid(text: str) -> bool:
    """Whether the text is a UUID in its normal, lower-case form."""
    return _is_uuid(text) is not None


@cache.remembered(4096)
def is_semver(text: str) -> bool:
    """Whether the text has the form of a semantic version 2.0.0, numbers of any length."""
    return _is_semver(text) is not None


def is_interface_address(text: str) -> bool:
    """Whether the text is an address with a prefix length in canonical form, such as 10.9.8.7/24."""
    try:
        interface = ipaddress.ip_interface(text)
    except ValueError:
        return False
    if isinstance(interface, ipaddress.IPv6Interface) and interface.ip.ipv4_mapped is not None:
        return False  # its canonical form is the IPv4 one
    return f"{interface.ip}/{interface.network.prefixlen}" == text


def check_label(problems: Problems, path: str, text: str) -> None:
    """A DNS label is wanted."""
    if not is_dns_label(text):
        field_errors.invalid(problems, path, f'"{text[:80]}" {LABEL_RULE}')


def check_subdomain(problems: Problems, path: str, text: str) -> None:
    """A DNS subdomain is wanted."""
    if not is_dns_subdomain(text):
        field_errors.invalid(problems, path, f'"{text[:80]}" {SUBDOMAIN_RULE}')


def check_label_key(problems: Problems, path: str, text: str) -> None:
    """A label key is wanted."""
    if not is_label_key(text):
        field_errors.invalid(problems, path, f'"{text[:80]}" {KEY_RULE}')


def check_label_value(problems: Problems, path: str, text: str) -> None:
    """A label value is wanted."""
    if not is_label_value(text):
        field_errors.invalid(problems, path, f'"{text[:80]}" {VALUE_RULE}')


def check_driver(problems: Problems, path: str, text: str) -> None:
    """A driver name is wanted: a DNS subdomain in any case, at most 63 bytes."""
    if not text:
        field_errors.required(problems, path, "name of the driver")
        return
    if field_errors.byte_length(text) > MAX_DRIVER:
        field_errors.too_long(problems, path, MAX_DRIVER)
    check_subdomain(problems, path, text.lower())


def check_pool(problems: Problems, path: str, text: str) -> None:
    """A pool name is wanted: DNS subdomains joined by '/'."""
    if not text:
        field_errors.required(problems, path, "name of the pool")
        return
    if field_errors.byte_length(text) > MAX_SUBDOMAIN:
        field_errors.too_long(problems, path, MAX_SUBDOMAIN)
    if not all(is_dns_subdomain(part) for part in text.split("/")):
        field_errors.invalid(
            problems, path, f'"{text[:80]}": each part between "/" {SUBDOMAIN_RULE}'
        )


def check_attribute_name(problems: Problems, path: str, text: str) -> None:
    """A name of an attribute or capacity is wanted: an identifier, optionally after a domain and '/'."""
    for kind, message in _attribute_name_faults(text):
        problems.append(field_errors.FieldProblem(kind, path, message))


def check_qualified_attribute(problems: Problems, path: str, text: str) -> None:
    """An attribute name with its domain is wanted. Stricter than on devices: the domain is lower case."""
    for kind, message in _attribute_name_faults(text):
        problems.append(field_errors.FieldProblem(kind, path, message))
    domain, slash, _ = text.partition("/")
    if not slash:
        field_errors.invalid(problems, path, f'"{text[:80]}" {QUALIFIED_RULE}')
    elif text.count("/") == 1 and not is_dns_subdomain(domain):
        field_errors.invalid(problems, path, f'"{domain[:80]}" {SUBDOMAIN_RULE}')


@cache.remembered(8192)
def _attribute_name_faults(text: str) -> tuple[tuple[str, str], ...]:
    faults: Problems = []
    parts = text.split("/")
    if len(parts) == 1:
        _check_identifier(faults, text)
    elif len(parts) == 2:  # upstream looks at no name with more than one "/"
        domain, name = parts
        if domain:
            check_driver(faults, "", domain)
        else:
            field_errors.invalid(faults, "", "the domain before '/' must not be empty")
        if name:
            _check_identifier(faults, name)
        else:
            field_errors.invalid(faults, "", "the name after '/' must not be empty")
    return tuple((problem.type, f'"{text[:80]}": {problem.message}') for problem in faults)


def _check_identifier(problems: Problems, text: str) -> None:
    if field_errors.byte_length(text) > MAX_IDENTIFIER:
        field_errors.too_long(problems, "", MAX_IDENTIFIER)
    if _is_identifier(text) is None:
        field_errors.invalid(problems, "", IDENTIFIER_RULE)
