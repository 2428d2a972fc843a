"""Rewrites a pattern for upstream's regular expressions into an equivalent one for RE2.

Given a pattern; returns RE2's form or raises CelError where upstream refuses what RE2 would accept: `\\C`,
names of groups outside ASCII. Upstream knows more names in `\\p{…}` and lets groups share a name. What is
invalid for both passes unchanged, for RE2 to refuse. The two may know different versions of Unicode.
"""

from __future__ import annotations

import re
import sys
from typing import Final

from dovetail import cache
from dovetail.cel.evaluate.values import CelError

# Names in \p{…} are looked up without blanks, dashes and underscores, the first letter large, the rest small.
# Upstream then finds no script whose proper name has an underscore, so those are not listed.
_CATEGORY_NAMES: Final = """
    C Cc Cf Cn Co Cs L Ll Lm Lo Lt Lu M Mc Me Mn N Nd Nl No P Pc Pd Pe Pf Pi Po Ps S Sc Sk Sm So Z Zl Zp
    Zs
"""
_SCRIPT_NAMES: Final = """
    Adlam Ahom Arabic Armenian Avestan Balinese Bamum Batak Bengali Bhaiksuki Bopomofo Brahmi Braille
    Buginese Buhid Carian Chakma Cham Cherokee Chorasmian Common Coptic Cuneiform Cypriot Cyrillic
    Deseret Devanagari Dogra Duployan Elbasan Elymaic Ethiopic Georgian Glagolitic Gothic Grantha Greek
    Gujarati Gurmukhi Han Hangul Hanunoo Hatran Hebrew Hiragana Inherited Javanese Kaithi Kannada
    Katakana Kawi Kharoshthi Khmer Khojki Khudawadi Lao Latin Lepcha Limbu Lisu Lycian Lydian Mahajani
    Makasar Malayalam Mandaic Manichaean Marchen Medefaidrin Miao Modi Mongolian Mro Multani Myanmar
    Nabataean Nandinagari Newa Nko Nushu Ogham Oriya Osage Osmanya Palmyrene Phoenician Rejang Runic
    Samaritan Saurashtra Sharada Shavian Siddham Sinhala Sogdian Soyombo Sundanese Syriac Tagalog
    Tagbanwa Takri Tamil Tangsa Tangut Telugu Thaana Thai Tibetan Tifinagh Tirhuta Toto Ugaritic Vai
    Vithkuqi Wancho Yezidi Yi
"""
MAX_NESTED_GROUPS: Final = 999  # upstream's parser refuses trees higher than 1000
_CATEGORIES: Final = frozenset(_CATEGORY_NAMES.split())
_SCRIPTS: Final = frozenset(_SCRIPT_NAMES.split())
_ALIASES: Final = {
    "Casedletter": "Lc",
    "Closepunctuation": "Pe",
    "Combiningmark": "M",
    "Connectorpunctuation": "Pc",
    "Control": "Cc",
    "Cntrl": "Cc",
    "Currencysymbol": "Sc",
    "Dashpunctuation": "Pd",
    "Decimalnumber": "Nd",
    "Digit": "Nd",
    "Enclosingmark": "Me",
    "Finalpunctuation": "Pf",
    "Format": "Cf",
    "Initialpunctuation": "Pi",
    "Letter": "L",
    "Letternumber": "Nl",
    "Lineseparator": "Zl",
    "Lowercaseletter": "Ll",
    "Mark": "M",
    "Mathsymbol": "Sm",
    "Modifierletter": "Lm",
    "Modifiersymbol": "Sk",
    "Nonspacingmark": "Mn",
    "Number": "N",
    "Openpunctuation": "Ps",
    "Other": "C",
    "Otherletter": "Lo",
    "Othernumber": "No",
    "Otherpunctuation": "Po",
    "Othersymbol": "So",
    "Paragraphseparator": "Zp",
    "Privateuse": "Co",
    "Punctuation": "P",
    "Punct": "P",
    "Separator": "Z",
    "Spaceseparator": "Zs",
    "Spacingmark": "Mc",
    "Surrogate": "Cs",
    "Symbol": "S",
    "Titlecaseletter": "Lt",
    "Unassigned": "Cn",
    "Uppercaseletter": "Lu",
}
_LACKING: Final = {  # groups that RE2 lacks, as the categories they consist of
    "Lc": frozenset(("Lu", "Ll", "Lt")),
    "Cn": frozenset(("Cn",)),
    "C": frozenset(("Cc", "Cf", "Cn", "Co", "Cs")),
}
_GROUP_NAME: Final = r"\(\?P?<([A-Za-z0-9_]+)>"
_PART: Final = (
    r"\\Q.*?(?:\\E|\Z)"  # quoted text
    r"|\\[pP](?:\{[^}]*\}|[^{])"  # a Unicode group
    r"|\\."  # any other escape
    r"|\[:[^\]:]*:\]"  # a class by name, inside a class
    r"|\[\^?\]?"  # the start of a class; a bracket right there is a member
    r"|\(\?P?<"  # a named group
    r"|."
)


def for_re2(pattern: str) -> str:
    """The pattern in RE2's spelling."""
    if pattern.count("(") > MAX_NESTED_GROUPS and _group_depth(pattern) > MAX_NESTED_GROUPS:
        raise CelError("error parsing regexp: expression nests too deeply")
    if "\\" not in pattern and "(?" not in pattern:
        return pattern
    written: list[str] = []
    position, in_class = 0, False
    while position < len(pattern):
        part = _next(pattern, position, in_class=in_class)
        position += len(part)
        if part.startswith(("\\p", "\\P")):
            part = _unicode_group(part, in_class=in_class)
        elif part == "\\C":
            raise CelError("error parsing regexp: invalid escape sequence: `\\C`")
        elif part.startswith("(?") and not in_class:
            part, position = "(", _after_name(pattern, position - len(part))
        elif part.startswith("[") and not in_class:
            in_class = True
        elif part == "]":
            in_class = False
        written.append(part)
    return "".join(written)


def _group_depth(pattern: str) -> int:
    """How deeply capturing groups are nested; escapes and classes are ignored, which can only overcount."""
    depth = deepest = 0
    opened: list[bool] = []
    for position, character in enumerate(pattern):
        if character == "(":
            opened.append(not pattern.startswith("(?:", position))
            depth += opened[-1]
            deepest = max(deepest, depth)
        elif character == ")" and opened:
            depth -= opened.pop()
    return deepest


def _next(pattern: str, position: int, *, in_class: bool) -> str:
    match = re.compile(_PART, re.DOTALL).match(pattern, position)
    assert match is not None, "the last branch takes any character"
    part = match.group()
    if in_class and (
        part.startswith(("\\Q", "(")) or (part[0] == "[" and not part.startswith("[:"))
    ):
        return part[:2] if part[0] == "\\" else part[0]
    if not in_class and part.startswith("[:"):
        return "["
    return part


def _after_name(pattern: str, position: int) -> int:
    name = re.compile(_GROUP_NAME).match(pattern, position)
    if name is None:
        raise CelError("error parsing regexp: invalid named capture")
    return name.end()


def _unicode_group(part: str, *, in_class: bool) -> str:
    name = part[3:-1] if part[2:3] == "{" else part[2:]
    negated = part[1] == "P"
    if name.startswith("^"):
        negated, name = not negated, name[1:]
    script = re.sub("[-_ ]", "", name).capitalize() if name.isascii() else name
    script = _ALIASES.get(script, script)
    if script == "Assigned":
        negated, script = not negated, "Cn"
    if script == "Any" or script in _SCRIPTS or (script in _CATEGORIES and script not in _LACKING):
        return f"\\{'P' if negated else 'p'}{{{script}}}"
    if script == "Ascii":
        ranges = r"\x{80}-\x{10FFFF}" if negated else r"\x{0}-\x{7F}"
    elif script in _LACKING:
        ranges = _ranges(_LACKING[script], negated=negated)
    else:
        raise CelError(f"error parsing regexp: invalid character class range: `{part}`")
    return ranges if in_class else f"[{ranges}]"


@cache.remembered(8)
def _ranges(categories: frozenset[str], *, negated: bool) -> str:
    """The members of some categories as ranges of a class. Scans all characters once, then caches the result."""
    import unicodedata

    ranges: list[str] = []
    start = -1
    for code in range(sys.maxunicode + 2):
        is_member = (
            code <= sys.maxunicode and (unicodedata.category(chr(code)) in categories) != negated
        )
        if is_member and start < 0:
            start = code
        elif not is_member and start >= 0:
            ranges.append(f"\\x{{{start:X}}}-\\x{{{code - 1:X}}}")
            start = -1
    return "".join(ranges)
