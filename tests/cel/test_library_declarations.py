"""Which functions there are: the list upstream declares, apart from operators."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

from dovetail.cel import library
from dovetail.cel.check.declarations import Library


def ids(functions: Library, name: str) -> list[str]:
    return [overload.id for overload in functions.functions[name]]


def test_every_overload_has_an_id_of_its_own() -> None:
    for functions in (library.STORED, library.NEW):
        seen = Counter(o.id for overloads in functions.functions.values() for o in overloads)
        assert [id for id, count in seen.items() if count > 1] == []


def test_stored_expressions_know_one_function_more_than_new_ones() -> None:
    assert set(library.STORED.functions) - set(library.NEW.functions) == {"includes"}
    assert sum(map(len, library.STORED.functions.values())) == 241
    assert sum(map(len, library.NEW.functions.values())) == 240


def test_overloads_of_a_shared_name_come_in_upstreams_order() -> None:
    of_strings = ["string_index_of_string", "string_index_of_string_int"]
    assert ids(library.STORED, "indexOf") == [*of_strings, "list_a_index_of_int"]
    assert ids(library.NEW, "indexOf") == ["list_a_index_of_int", *of_strings]
    assert ids(library.STORED, "ip") == ["string_to_ip", "cidr_ip"]
    assert ids(library.STORED, "string")[-2:] == ["ip_to_string", "cidr_to_string"]
    assert ids(library.STORED, "isLessThan") == ["quantity_is_less_than", "semver_is_less_than"]
    assert ids(library.STORED, "getHours")[-1] == "duration_to_hours"


def test_only_what_the_planner_runs_itself_has_no_implementation() -> None:
    missing = {
        overload.id
        for overloads in library.STORED.functions.values()
        for overload in overloads
        if overload.implementation is None
    }
    assert missing == {"optional_or_optional", "optional_orValue_value"}


def test_flatten_takes_a_flat_list_at_run_time() -> None:
    assert library.STORED.functions["flatten"][0].accepts(([1, 2],))


def test_patterns_are_not_loaded_before_the_first_one_is_used() -> None:
    program = "import sys, dovetail.cel.library; sys.exit('re2' in sys.modules or 'zoneinfo' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
