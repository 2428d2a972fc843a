"""URLs: what is one, its parts, its normal form. Upstream gave every expected value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.cel import ERROR, Case, assert_same, call, url

CASES: list[Case] = [
    ("isURL", ("http://example.com",), True),
    ("isURL", ("/path?q",), True),
    ("isURL", ("*",), True),
    ("isURL", ("x:/y",), True),
    ("isURL", ("x+y-z.1://h/p",), True),
    ("isURL", ("http://",), True),
    ("isURL", ("http://:80/",), True),
    ("isURL", ("ftp://host:80:90",), True),
    ("isURL", ("http://[::1]:80/",), True),
    ("isURL", ("http://[::1]:x",), False),
    ("isURL", ("http://[fe80::1%25et%20h0]/",), True),
    ("isURL", ("http://[::1]]/",), False),
    ("isURL", ("http://[[::1]]/",), False),
    ("isURL", ("http://a%41b/",), False),
    ("isURL", ('http://a"b<c>/',), True),
    ("isURL", ("http://a{b}/",), False),
    ("isURL", ("http://@host",), True),
    ("isURL", ("http://us%zzer@host/",), False),
    ("isURL", ("http://u!$&'()*+,;=:p!@host/",), True),
    ("isURL", ("/a%zz",), False),
    ("isURL", ("/%c3%a9",), True),
    ("isURL", ("/a{b}",), True),
    ("isURL", ("/a'b(c)*!",), True),
    ("isURL", ("/a#b#c",), True),
    ("isURL", ("/a#%41!'()*",), True),
    ("isURL", ("/p?a",), True),
    ("isURL", ("/p?&&a=1&",), True),
    ("isURL", ("/p?a=%zz&b=1",), True),
    ("isURL", ("/p?a=b=c",), True),
    ("isURL", ("http://h#f",), False),
    ("isURL", ("x:opaque?q=1#f",), True),
    ("isURL", ("x:////a",), True),
    ("isURL", ("./a:b",), False),
    ("isURL", ("http://h/../a/./b",), True),
    ("isURL", ("https://example.com:443",), True),
    ("isURL", ("tel:+1",), True),
    ("isURL", ("http://h!$&'()*+,;=/",), True),
    ("isURL", ("h-t:x",), True),
    ("isURL", ("\x00",), False),
    ("isURL", ("http://h/\n",), False),
    ("url", ("http://example.com",), url("http://example.com")),
    ("url", ("/path?q",), url("/path?q")),
    ("url", ("*",), url("*")),
    ("url", ("x:/y",), url("x:/y")),
    ("url", ("x+y-z.1://h/p",), url("x+y-z.1://h/p")),
    ("url", ("http://",), url("http:")),
    ("url", ("http://:80/",), url("http://:80/")),
    ("url", ("ftp://host:80:90",), url("ftp://host:80:90")),
    ("url", ("http://[::1]:80/",), url("http://[::1]:80/")),
    ("url", ("http://[::1]:x",), ERROR),
    ("url", ("http://[fe80::1%25et%20h0]/",), url("http://[fe80::1%25et%20h0]/")),
    ("url", ("http://[::1]]/",), ERROR),
    ("url", ("http://[[::1]]/",), ERROR),
    ("url", ("http://a%41b/",), ERROR),
    ("url", ('http://a"b<c>/',), url('http://a"b<c>/')),
    ("url", ("http://a{b}/",), ERROR),
    ("url", ("http://@host",), url("http://@host")),
    ("url", ("http://us%zzer@host/",), ERROR),
    ("url", ("http://u!$&'()*+,;=:p!@host/",), url("http://u%21$&%27%28%29%2A+,;=:p%21@host/")),
    ("url", ("/a%zz",), ERROR),
    ("url", ("/%c3%a9",), url("/%c3%a9")),
    ("url", ("/a{b}",), url("/a%7Bb%7D")),
    ("url", ("/a'b(c)*!",), url("/a'b(c)*!")),
    ("url", ("/a#b#c",), url("/a#b%23c")),
    ("url", ("/a#%41!'()*",), url("/a#%41!'()*")),
    ("url", ("/p?a",), url("/p?a")),
    ("url", ("/p?&&a=1&",), url("/p?&&a=1&")),
    ("url", ("/p?a=%zz&b=1",), url("/p?a=%zz&b=1")),
    ("url", ("/p?a=b=c",), url("/p?a=b=c")),
    ("url", ("http://h#f",), ERROR),
    ("url", ("x:opaque?q=1#f",), url("x:opaque?q=1#f")),
    ("url", ("x:////a",), url("x:////a")),
    ("url", ("./a:b",), ERROR),
    ("url", ("http://h/../a/./b",), url("http://h/../a/./b")),
    ("url", ("https://example.com:443",), url("https://example.com:443")),
    ("url", ("tel:+1",), url("tel:+1")),
    ("url", ("http://h!$&'()*+,;=/",), url("http://h!$&'()*+,;=/")),
    ("url", ("h-t:x",), url("h-t:x")),
    ("url", ("\x00",), ERROR),
    ("url", ("http://h/\n",), ERROR),
]


@pytest.mark.parametrize(("name", "arguments", "expected"), CASES)
def test_a_url_function_answers_as_upstream(
    name: str, arguments: tuple[Any, ...], expected: Any
) -> None:
    assert_same(call(name, *arguments), expected)


@pytest.mark.parametrize(
    ("text", "normal"), [("HTTP://H/%7e?", "http://H/%7e?"), ("x:y", "x:y"), ("/a#%zz", None)]
)
def test_a_url_has_a_normal_form(text: str, normal: str | None) -> None:
    result = call("url", text)
    assert (None if result is ERROR else result.text) == normal


def test_bytes_that_are_no_text_come_through_a_query_unharmed() -> None:
    (value,) = call("getQuery", url("/p?a=%ff%c3%a9"))["a"]
    assert call("size", value) == 2
    assert call("bytes", value) == b"\xff\xc3\xa9"


def test_a_query_of_too_many_parameters_reads_as_empty() -> None:
    assert call("getQuery", url("/p?" + "&".join(["a=1"] * 10_001))) == {}
    assert len(call("getQuery", url("/p?" + "&".join(["a=1"] * 10_000)))["a"]) == 10_000


TEXTS = r"""
http://example.com
https://user:pass@example.com:8080/a/b?x=1&y=2&x=3#frag
HTTP://EXAMPLE.com/A
/path
/path?q
/path?
/path??
//host/path
///path
*
x
x/y
x:y
x:/y
x://y
x:
:x
1x://y
x+y-z.1://h/p
mailto:a@b.c
mailto:a@b.c?subject=x
http:
http:/
http://
http:///
http:///path
http://:80
http://:80/
http://host:
http://host:/
http://host:abc
http://host:80:90
ftp://host:80:90
ftp://host:80:9x
http://host:-1
http://host:99999
http://[::1]
http://[::1]:80/
http://[::1
http://::1]/
http://[::1]x
http://[::1]:x
http://[::1]:80x
http://[1.2.3.4]/
http://[fe80::1%25eth0]/
http://[fe80::1%eth0]/
http://[fe80::1%25et%20h0]/
http://[fe80::1%25%2f]/
http://[fe80::1%25]/
http://[]/
http://[g]/
http://[::1]]/
http://a[::1]/
http://a[b/
http://a]b/
http://[[::1]]/
http://[::ffff:1.2.3.4]/
http://a b/
http://a%20b/
http://a%C3%A9b/
http://a%41b/
http://a%25b/
http://a%2/
http://a%zz/
http://é/
http://a"b<c>/
http://a\b/
http://a^b/
http://a`b/
http://a{b}/
http://a|b/
http://user@host
http://user:@host
http://:pw@host
http://@host
http://u@v@host
http://u:p@w:x@host
http://us%20er:p%40w@host/
http://us er@host/
http://us%zzer@host/
http://us[er@host/
http://us/er@host/
http://u%41@host/
http://u!$&'()*+,;=:p!@host/
/a b
/a%20b
/a%2fb
/a%2Fb/c
/a%zz
/a%2
/a%
/é
/%C3%A9
/%c3%a9
/a"b
/a<b>
/a[b]
/a{b}
/a|b
/a^b
/a`b
/a\b
/a'b(c)*!
/a;b,c=d@e:f$g&h+i
/~a_b-c.d
/a#b
/a#b#c
/#
/a#
/a#%zz
/a#é x
/a#%41!'()*
/a#"<>
#frag
?q=1
/p?a=1&b=2&a=3
/p?a
/p?a&b
/p?=1
/p?a=
/p?&&a=1&
/p?a=1;b=2
/p?a;b=1&c=2
/p?a+b=c+d
/p?a%20b=c%2Bd
/p?a=%zz&b=1
/p?%zz=1&b=1
/p?a=%C3%A9
/p?a=%ff
/p?a=é
/p?a=b=c
/p?a=1?b=2
/p?a b=c d
http://h?q=1
http://h#f
http://h/?q=1#f?g
http://h?#f
http://h/p?x#
x:?q
x:opaque?q=1#f
x:opaque%zz
x:/a//b
x://h//b
x:///a
x:////a
http:////a
////a
a:b/c
./a:b
/a:b
/.//a
/../a
/./a
http://h/../a/./b
http://h:80/%
http://h/%2e%2E/
http://exa mple.com
http://example.com:80/foo%20bar?baz=qux#hash
https://example.com:443
unix:///var/run/x.sock
data:text/plain,hello
urn:isbn:123
tel:+1
file:///c:/x
jdbc:mysql://h:3306/db
http://1.2.3.4:80
http://host_name/
http://h!$&'()*+,;=/
http://%41/
http://h%00/
http://h%ff/
http://h.%e4%b8%ad/
h-t:x
h_t:x
h t:x
"""
UNUSUAL = (
    "",
    "\x00",
    "/a\x01",
    "/a\x7f",
    "/a\tb",
    "/a\x85b",
    "http://h/\n",
    " http://h",
    "http://h ",
    "/a\xa0b",
    "/" + "a" * 300,
)
PARTS = ("getScheme", "getHost", "getHostname", "getPort", "getEscapedPath", "getQuery")


def texts() -> list[str]:
    """Everything tried."""
    return [*TEXTS.strip("\n").split("\n"), *UNUSUAL]


def inputs() -> Iterator[tuple[Any, ...]]:
    """Calls to compare with upstream beyond the table."""
    for text in texts():
        yield "isURL", text
        yield "url", text
