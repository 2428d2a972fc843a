"""The part of Go's template language we render: what it means, and that the rest is refused rather than guessed."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail import errors
from dovetail.install import chart_templates

ROOT: dict[str, Any] = {
    "Values": {
        "a": "x",
        "none": "",
        "yes": True,
        "list": [1, 2],
        "map": {"k": "v"},
        "items": [{"n": "p"}, {"n": "q"}],
    },
    "Has": {"Versions": frozenset({"v1/Thing"})},
}


def rendered(text: str, **others: str) -> str:
    return chart_templates.Rendering({"t": text, **others}).render("t", ROOT)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a {{ .Values.a }} b", "a x b"),
        ("a {{- .Values.a -}} b", "axb"),
        ("a\n  {{- if .Values.yes }}\nb\n{{- end }}\nc", "a\nb\nc"),
        ("{{ if .Values.none }}1{{ else if .Values.yes }}2{{ else }}3{{ end }}", "2"),
        ("{{ if .Values.none }}1{{ else }}3{{ end }}", "3"),
        ("{{ with .Values.map }}{{ .k }}{{ $.Values.a }}{{ end }}", "vx"),
        ("{{ with .Values.none }}1{{ end }}", ""),
        ("{{ range .Values.items }}[{{ .n }}]{{ end }}", "[p][q]"),
        ("{{ range .Values.list }}{{ . }},{{ end }}", "1,2,"),
        ("{{/* a comment */}}x{{- /* more */ -}} y", "xy"),
        ('{{ default "d" .Values.none }}{{ .Values.a | quote }}', 'd"x"'),
        ("{{ .Values.map | toYaml | nindent 2 }}", "\n  k: v"),
        ("{{ .Values.list | toJson }}", "[1,2]"),
        ('{{ if or .Values.none (eq .Values.a "x") }}1{{ end }}', "1"),
        (
            '{{ if .Has.Versions.Has "v1/Thing" }}1{{ end }}{{ if .Has.Versions.Has "v2" }}2{{ end }}',
            "1",
        ),
        ('{{ define "d" }}<{{ .k }}>{{ end }}{{ include "d" .Values.map }}', "<v>"),
        ("{{ .Values.yes }} {{ not .Values.yes }}", "true false"),
        ("{a}} {{ .Values.a }}}}", "{a}} x}}"),
    ],
)
def test_templates_mean_what_they_mean_to_go(text: str, expected: str) -> None:
    assert rendered(text) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{{ $x := .Values.a }}", "cannot read"),
        ("{{ .Values.absent }}", "no value of this name"),
        ("{{ upper .Values.a }}", 'no function "upper"'),
        ('{{ include "absent" . }}', "no template"),
        ("{{ if .Values.yes }}", "has no end"),
        ("{{ end }}", "without a block"),
        ("{{ .Values.map }}", "toYaml or toJson only"),
        ('{{ .Values.a | "x" }}', "not a function"),
        ("{{ (default .Values.a .Values.none }}", "not closed"),
        ('{{ fail "said so" }}', "said so"),
        ('{{ required "need it" .Values.none }}', "need it"),
        ("{{ indent .Values.a .Values.a }}", "t: "),
        ("{{ }}x{{ .Values.a.b }}", "no value of this name"),
    ],
)
def test_what_is_not_known_is_refused(text: str, words: str) -> None:
    with pytest.raises(errors.InputError, match=words):
        rendered(text)
