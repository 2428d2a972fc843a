"""Named formats: which texts have them, and what is said of those that have not. Upstream gave every message."""

from __future__ import annotations

import pytest

from dovetail.cel.library import formats
from tests.cel import listed

LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start"
    " and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is"
    " '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and "
    "must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
LABEL_1035 = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic"
    " character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for "
    "validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
)
KEY = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and "
    "must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', "
    "regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
CASES: list[tuple[str, str, list[str]]] = [
    ("dns1123Label", "a", []),
    ("dns1123Label", "1a", []),
    ("dns1123Label", "123e4567-e89b-12d3-a456-426614174000", []),
    ("dns1123Label", "2020-01-01", []),
    ("dns1123Label", "2019-02-29", []),
    ("dns1123Label", "2020-00-10", []),
    ("dns1123Label", "", [LABEL]),
    ("dns1123Label", "a/", [LABEL]),
    (
        "dns1123Label",
        "a/xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        ["must be no more than 63 characters", LABEL],
    ),
    ("dns1123Label", "*", [LABEL]),
    ("dns1123Label", "YQ==", [LABEL]),
    ("dns1123Label", "2020-01-01T00:00:00+01:00", [LABEL]),
    ("dns1123Label", "2020-01-01T00:00:00,5Z", [LABEL]),
    ("dns1123Subdomain", "a", []),
    ("dns1123Subdomain", "1a", []),
    ("dns1123Subdomain", "0", []),
    ("dns1123Subdomain", "123e4567e89b-12d3-a456426614174000", []),
    ("dns1123Subdomain", "2020-02-29", []),
    ("dns1123Subdomain", "2020-00-10", []),
    ("dns1123Subdomain", "", [SUBDOMAIN]),
    ("dns1123Subdomain", "a/", [SUBDOMAIN]),
    ("dns1123Subdomain", "_a", [SUBDOMAIN]),
    ("dns1123Subdomain", "http://h:80:90/", [SUBDOMAIN]),
    ("dns1123Subdomain", "YQ=", [SUBDOMAIN]),
    ("dns1123Subdomain", "2020-01-01T00:00:00+01:00", [SUBDOMAIN]),
    ("dns1123Subdomain", "2020-01-01T", [SUBDOMAIN]),
    ("dns1035Label", "a", []),
    ("dns1035Label", "abc", []),
    ("dns1035Label", "a-b", []),
    ("dns1035Label", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", []),
    ("dns1035Label", "x", []),
    ("dns1035Label", "g23e4567-e89b-12d3-a456-426614174000", []),
    ("dns1035Label", "", [LABEL_1035]),
    ("dns1035Label", "A.b/c", [LABEL_1035]),
    ("dns1035Label", "a_", [LABEL_1035]),
    ("dns1035Label", "1:", [LABEL_1035]),
    ("dns1035Label", "++//", [LABEL_1035]),
    ("dns1035Label", "2020-01-01T00:00:00+01:00", [LABEL_1035]),
    ("qualifiedName", "a", []),
    ("qualifiedName", "1", []),
    ("qualifiedName", "0", []),
    ("qualifiedName", "g23e4567-e89b-12d3-a456-426614174000", []),
    ("qualifiedName", "2020-02-29", []),
    ("qualifiedName", "t", []),
    ("qualifiedName", "", ["name part must be non-empty", "name part " + KEY]),
    ("qualifiedName", "_a", ["name part " + KEY]),
    ("qualifiedName", "*", ["name part " + KEY]),
    ("qualifiedName", "YQ==", ["name part " + KEY]),
    ("qualifiedName", "2020-01-01T00:00:00.123Z", ["name part " + KEY]),
    ("qualifiedName", "2020-02-30T00:00:00Z", ["name part " + KEY]),
    ("dns1123LabelPrefix", "a", []),
    ("dns1123LabelPrefix", "1a", []),
    ("dns1123LabelPrefix", "x", []),
    ("dns1123LabelPrefix", "2020-01-01", []),
    ("dns1123LabelPrefix", "0000-01-01", []),
    ("dns1123LabelPrefix", "", [LABEL]),
    ("dns1123LabelPrefix", "A.b/c", [LABEL]),
    ("dns1123LabelPrefix", "a_", [LABEL]),
    ("dns1123LabelPrefix", "http://us[er@h/", [LABEL]),
    ("dns1123LabelPrefix", "YW Jj", [LABEL]),
    ("dns1123LabelPrefix", "2020-01-01T23:60:00Z", [LABEL]),
    ("dns1123SubdomainPrefix", "a", []),
    ("dns1123SubdomainPrefix", "1a", []),
    ("dns1123SubdomainPrefix", "--", []),
    ("dns1123SubdomainPrefix", "123e4567e89b-12d3-a456426614174000", []),
    ("dns1123SubdomainPrefix", "2019-02-29", []),
    ("dns1123SubdomainPrefix", "", [SUBDOMAIN]),
    ("dns1123SubdomainPrefix", "A.b/c", [SUBDOMAIN]),
    ("dns1123SubdomainPrefix", "/a", [SUBDOMAIN]),
    ("dns1123SubdomainPrefix", "//h", [SUBDOMAIN]),
    ("dns1123SubdomainPrefix", "YWJj\n", [SUBDOMAIN]),
    ("dns1123SubdomainPrefix", "2020-01-01T23:60:00Z", [SUBDOMAIN]),
    ("dns1123SubdomainPrefix", "2020-01-01T00:00:00Zt", [SUBDOMAIN]),
    ("dns1035LabelPrefix", "a", []),
    ("dns1035LabelPrefix", "a-b", []),
    ("dns1035LabelPrefix", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", []),
    ("dns1035LabelPrefix", "--", []),
    ("dns1035LabelPrefix", "g23e4567-e89b-12d3-a456-426614174000", []),
    ("dns1035LabelPrefix", "", [LABEL_1035]),
    ("dns1035LabelPrefix", "A.b/c", [LABEL_1035]),
    (
        "dns1035LabelPrefix",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.b",
        ["must be no more than 63 characters", LABEL_1035],
    ),
    ("dns1035LabelPrefix", "1:", [LABEL_1035]),
    ("dns1035LabelPrefix", "-_-_", [LABEL_1035]),
    ("dns1035LabelPrefix", "2020-01-01t00:00:00z", [LABEL_1035]),
    ("dns1035LabelPrefix", "2020-01-01T00:00:00,5Z", [LABEL_1035]),
    ("labelValue", "", []),
    ("labelValue", "a..b", []),
    ("labelValue", "0", []),
    ("labelValue", "g23e4567-e89b-12d3-a456-426614174000", []),
    ("labelValue", "2020-02-29", []),
    ("labelValue", "t", []),
    ("labelValue", "-a", [VALUE]),
    ("labelValue", "_a", [VALUE]),
    ("labelValue", "*", [VALUE]),
    ("labelValue", "YQ==", [VALUE]),
    ("labelValue", "2020-01-01T00:00:00.123Z", [VALUE]),
    ("labelValue", "2020-02-30T00:00:00Z", [VALUE]),
    ("uri", "/b", []),
    ("uri", "http://x/y", []),
    ("uri", "/a", []),
    ("uri", "/a b", []),
    ("uri", "http://h/é", []),
    ("uri", "*", []),
    ("uri", "", ['parse "": empty url']),
    ("uri", "a/b", ['parse "a/b": invalid URI for request']),
    ("uri", "1:", ['parse "1:": invalid URI for request']),
    ("uri", "YWJj\n", ['parse "YWJj\\n": net/url: invalid control character in URL']),
    ("uri", "2020-01-01T00:00:00Z", ['parse "2020-01-01T00:00:00Z": invalid URI for request']),
    ("uri", "2020-01-01T", ['parse "2020-01-01T": invalid URI for request']),
    ("uuid", "123e4567-e89b-12d3-a456-426614174000", []),
    ("uuid", "123E4567E89B12D3A456426614174000", []),
    ("uuid", "123e4567e89b-12d3-a456426614174000", []),
    ("uuid", "", ["does not match the UUID format"]),
    ("uuid", "a/b/c", ["does not match the UUID format"]),
    (
        "uuid",
        "a/xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        ["does not match the UUID format"],
    ),
    ("uuid", "\x01", ["does not match the UUID format"]),
    ("uuid", "YW Jj", ["does not match the UUID format"]),
    ("uuid", "2020-01-01T00:00:00Z", ["does not match the UUID format"]),
    ("uuid", "2020-01-01T", ["does not match the UUID format"]),
    ("byte", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", []),
    ("byte", "123E4567E89B12D3A456426614174000", []),
    ("byte", "YWJj", []),
    ("byte", "YWI=", []),
    ("byte", "YQ==", []),
    ("byte", "", ["invalid base64"]),
    ("byte", "a/b", ["invalid base64"]),
    (
        "byte",
        "a/xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        ["invalid base64"],
    ),
    ("byte", "*", ["invalid base64"]),
    ("byte", "Y", ["invalid base64"]),
    ("byte", "2020-01-01T00:00:00Z", ["invalid base64"]),
    ("byte", "t", ["invalid base64"]),
    ("date", "2020-01-01", []),
    ("date", "2020-02-29", []),
    ("date", "0000-01-01", []),
    ("date", "", ["invalid date"]),
    ("date", "a/b/c", ["invalid date"]),
    (
        "date",
        "a/xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        ["invalid date"],
    ),
    ("date", "\x01", ["invalid date"]),
    ("date", "YQ==", ["invalid date"]),
    ("date", "2020-01-01T00:00:00Z", ["invalid date"]),
    ("date", "2020-01-01T", ["invalid date"]),
    ("datetime", "2020-01-01T00:00:00Z", []),
    ("datetime", "2020-01-01t00:00:00z", []),
    ("datetime", "2020-01-01T00:00:00.123Z", []),
    ("datetime", "2020-01-01T00:00:00+01:00", []),
    ("datetime", "2020-01-01T00:00:00+99:99", []),
    ("datetime", "2020-01-01T00:00:00x1Z", []),
    ("datetime", "", ["invalid datetime"]),
    ("datetime", "a/b", ["invalid datetime"]),
    ("datetime", "éééééééééééééééééééééééééééééééé", ["invalid datetime"]),
    ("datetime", "http://h/é", ["invalid datetime"]),
    ("datetime", "g23e4567-e89b-12d3-a456-426614174000", ["invalid datetime"]),
    ("datetime", "2020-02-29", ["invalid datetime"]),
    ("datetime", "T00:00:00Z", ["invalid datetime"]),
]


@pytest.mark.parametrize(("name", "text", "problems"), CASES)
def test_a_format_finds_the_problems_upstream_finds(
    name: str, text: str, problems: list[str]
) -> None:
    assert formats.FORMATS[name].problems(text) == problems


def test_a_well_formed_text_has_nothing_to_report() -> None:
    assert not formats.validate(formats.FORMATS["dns1123Label"], "node-1").has_value
    assert formats.validate(formats.FORMATS["date"], "soon").value == ["invalid date"]


def test_formats_are_found_by_their_name_in_expressions() -> None:
    assert formats.named("dns1123Label").value is formats.FORMATS["dns1123Label"]
    assert not formats.named("DNS1123Label").has_value


# What a check costs follows the size of its pattern: the numbers are upstream's.
@pytest.mark.parametrize(
    ("name", "size"), [("uuid", 70), ("date", 71), ("datetime", 71), ("uri", 1103), ("byte", 84)]
)
def test_a_format_knows_the_size_of_its_pattern(name: str, size: int) -> None:
    assert formats.FORMATS[name].regex_size == size


TEXTS = [
    *listed(
        "|a|A|abc|a-b|-a|a-|a.b|a..b|.a|a.|1|1a|a_b|a b|é|a/b|a/b/c|/b|a/|A.b/c|é-|--|-|"
        "éééééééééééééééééééééééééééééééé|My_Value.1|0|_a|a_|http://x/y|x|/a|/a b|http://[g]|http://h:x|"
        "%zz|/%zz|http://h/é|http://a b|*|http://h:80:90/|http://us[er@h/|mailto:x|//h|1:|http://[::1|"
        "http://a%41/|:x|123e4567-e89b-12d3-a456-426614174000|123E4567E89B12D3A456426614174000|"
        "123e4567-e89b-12d3-a456-42661417400|123e4567e89b-12d3-a456426614174000|"
        "g23e4567-e89b-12d3-a456-426614174000|YWJj|YWI=|YQ==|YQ=|Y|YW Jj|-_-_|++//|====|YWJjYQ==|"
        "2020-01-01|2020-02-30|2020-2-3|2020-02-29|2019-02-29|0000-01-01|10000-01-01|2020-01-01 |"
        "2020/01/01|2020-13-01|2020-00-10|2020-01-01T00:00:00Z|2020-01-01t00:00:00z|"
        "2020-01-01T00:00:00.123Z|2020-01-01T00:00:00+01:00|2020-01-01T00:00:00+99:99|"
        "2020-01-01T24:00:00Z|2020-01-01T23:60:00Z|2020-01-01T23:59:60Z|2020-01-01T00:00:00|"
        "2020-01-01T00:00Z|2020-01-01T00:00:00x1Z|2020-01-01T00:00:00.Z|2020-01-01T00:00:00ZTgarbage|"
        "2020-02-30T00:00:00Z|T00:00:00Z|t|2020-01-01T|2020-01-01T00:00:00,5Z|2020-01-01T00:00:00Zt"
    ),
    *(
        "x" * 63,
        "x" * 64,
        "x" * 253,
        "x" * 254,
        "a." * 100 + "a",
        "x" * 62 + "-",
        "é" * 32,
        "x" * 254 + "/a",
    ),
    *(
        "a/" + "x" * 64,
        "a" * 63 + ".b",
        "a\n",
        "a\nb",
        "\x01",
        "YWJj\n",
        "2020-01-01T00:00:00Z\n",
        "2020-01-01T00:00:00\n5Z",
    ),
]
