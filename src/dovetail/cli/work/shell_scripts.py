"""The completion scripts of bash, zsh and fish, and how each of them asks and is answered.

Given the command line up to the cursor, in the variable COMP_WORDS; answers with a line for each candidate: what it is
(plain, file or dir), the word, and a line of help where the shell shows one. click's own scripts do the same, but
complete no `--option=value`, cut descriptions at commas, and put a space behind words that go on (`node/a.mig=`). Never
asks a cluster.
"""

from __future__ import annotations

import os
from typing import Final

from click import shell_completion
from click.shell_completion import CompletionItem

LINE: Final = "COMP_WORDS"  # the command line up to the cursor
BREAKS: Final = "COMP_WORDBREAKS"  # of bash: readline completes what follows the last of them
UNFINISHED: Final = ("=", "/")  # a word that ends so goes on: no space follows it
PLAIN: Final = "plain"
_CURSOR: Final = "x"  # marks where the line ends, so that a space before the cursor is seen

BASH: Final = """\
%(complete_func)s() {
    local kind value
    COMPREPLY=()
    while IFS=$'\\t' read -r kind value; do
        case $kind in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            plain)
                COMPREPLY+=("$value")
                case $value in *[=/]) compopt -o nospace ;; esac
                ;;
        esac
    done < <(env COMP_WORDS="${COMP_LINE:0:COMP_POINT}" COMP_WORDBREAKS="$COMP_WORDBREAKS" \\
        %(complete_var)s=bash_complete "$1" 2>/dev/null)
}

complete -o nosort -F %(complete_func)s %(prog_name)s
"""

ZSH: Final = """\
#compdef %(prog_name)s

%(complete_func)s() {
    local line kind value help
    local -i width=0 code=1
    local -A helps
    local -a finished unfinished shown
    (( $+commands[%(prog_name)s] )) || return 1
    line="${(j: :)words[1,CURRENT-1]} ${(q)${:-$IPREFIX$PREFIX}}"

    while IFS=$'\\t' read -r kind value help; do
        case $kind in
            dir) compset -P '--*='; _path_files -/; return ;;
            file) compset -P '--*='; _path_files; return ;;
            plain)
                [[ $value == *[=/] ]] && unfinished+=("$value") || finished+=("$value")
                helps[$value]=$help
                (( $#value > width )) && width=$#value
                ;;
        esac
    done < <(env COMP_WORDS="$line" %(complete_var)s=zsh_complete %(prog_name)s 2>/dev/null)

    IPREFIX=
    if [[ -n "${(j::)helps}" ]]; then
        for value in $finished; do
            shown+=("${(r:width:)value}  ${helps[$value]:+-- $helps[$value]}")
        done
        compadd -U -l -V %(prog_name)s -d shown -a finished && code=0
    elif (( $#finished )); then
        compadd -U -V %(prog_name)s -a finished && code=0
    fi
    if (( $#unfinished )); then
        compadd -U -S '' -V %(prog_name)s -a unfinished && code=0
    fi
    return code
}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    %(complete_func)s "$@"
else
    compdef %(complete_func)s %(prog_name)s
fi
"""

FISH: Final = """\
function %(complete_func)s
    set -l token (commandline -ct)
    set -l prefix (string match -r -- '^--[^=]+=' $token; or echo '')
    set -l answers (env COMP_WORDS=(commandline -cp | string collect) \\
        %(complete_var)s=fish_complete %(prog_name)s 2>/dev/null)
    for answer in $answers
        set -l fields (string split -m 1 \\t -- $answer)
        switch $fields[1]
            case dir
                printf '%%s\\n' $prefix(__fish_complete_directories $fields[2])
            case file
                printf '%%s\\n' $prefix(__fish_complete_path $fields[2])
            case plain
                printf '%%s\\n' $fields[2]
        end
    end
end

complete --no-files --keep-order --command %(prog_name)s --arguments "(%(complete_func)s)"
"""


class _Completer(shell_completion.ShellComplete):
    """What the shells share: the line is read in the same way, and an answer is one line."""

    def get_completion_args(self) -> tuple[list[str], str]:
        """The words before the cursor, and what is typed of the last."""
        words = shell_completion.split_arg_string(os.environ.get(LINE, "") + _CURSOR)
        *before, last = words[1:] or [_CURSOR]
        return before, last.removesuffix(_CURSOR)

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem[str]]:
        """What the whole word may become: `--option=` is a part of it."""
        name, equals, _ = incomplete.partition("=")
        items = super().get_completions(args, incomplete)
        if not equals or not name.startswith("--") or "--" in args:
            return items
        return [
            CompletionItem(f"{name}={item.value}", item.type, item.help)
            if item.type == PLAIN
            else item
            for item in items
        ]

    def format_completion(self, item: CompletionItem[str]) -> str:
        """Kind, word and help, with tabs between them."""
        help_text = " ".join((item.help or "").split())
        return "\t".join(filter(None, (item.type, item.value, help_text)))


class Bash(_Completer):
    """bash shows no help, and readline replaces only what follows the last word break."""

    name = "bash"
    source_template = BASH

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem[str]]:
        """The ends of the words, from the last word break on."""
        breaks = os.environ.get(BREAKS, "")
        kept = max((incomplete.rfind(each) + 1 for each in breaks), default=0)
        items = super().get_completions(args, incomplete)
        return [
            CompletionItem(item.value[kept:] if item.type == PLAIN else item.value, item.type)
            for item in items
        ]


class Zsh(_Completer):
    """zsh lists words with their help."""

    name = "zsh"
    source_template = ZSH


class Fish(_Completer):
    """fish lists words with their help."""

    name = "fish"
    source_template = FISH


COMPLETERS: Final[dict[str, type[_Completer]]] = {each.name: each for each in (Bash, Zsh, Fish)}
