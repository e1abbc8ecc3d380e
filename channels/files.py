"""Which of the files that people attach are text, by what the network says of them. Pure; what is in them decides in the end.

Called by every channel's parser, so that a text file without a caption counts as words, and by the gateway, which has those files fetched.
"""

from __future__ import annotations

from channels.base import Attachment

_TYPES = frozenset(
    f"application/{kind}"
    for kind in (
        "ecmascript",
        "graphql",
        "javascript",
        "json",
        "jsonl",
        "ndjson",
        "sql",
        "toml",
        "typescript",
        "x-httpd-php",
        "x-javascript",
        "x-ndjson",
        "x-perl",
        "x-php",
        "x-python",
        "x-ruby",
        "x-sh",
        "x-shellscript",
        "x-sql",
        "x-subrip",
        "x-tex",
        "x-yaml",
        "xml",
        "yaml",
    )
)
_PAPERS = frozenset({"text/rtf", "text/richtext"})
"""Called text, and written for a word processor."""
_WRITTEN = """
adoc asm astro awk bash bat bib c cc cfg clj cljs cmake cmd coffee conf cpp cs css csv cts cue cxx d dart diff dockerfile edn el
elm env erl ex exs f90 fish fs fsx gitignore glsl go gradle graphql groovy h haml hcl hh hpp hrl hs htm html hxx ics ini ipynb
java jl js json json5 jsonc jsonl jsx kt kts less lisp log lua m makefile markdown md mdx mjs ml mli mm mts ndjson nfo nim nix org
pas patch php pl pm po pot properties proto ps1 psm1 pug py pyi pyx r rake rb reg rkt rs rst s sass sbt scala scm scss sh sol sql
srt sty sv svelte svg swift tcl tex text tf tfvars toml ts tsv tsx txt v vb vba vcf vhd vhdl vim vtt vue wat wgsl xhtml xml xsd
xsl yaml yml zig zsh
"""
_ENDINGS = frozenset(_WRITTEN.split())


def is_text(name: str, mime: str) -> bool:
    """Whether a file with this name and media type is text, most likely. The ending counts more than the type, which is guessed from it by
    people's programs: a TypeScript file goes by video/mp2t, a table by that of a spreadsheet."""
    if name.lower().rpartition(".")[2] in _ENDINGS:
        return True
    kind = mime.partition(";")[0].strip().lower()
    return (kind.startswith("text/") and kind not in _PAPERS) or kind in _TYPES or kind.endswith(("+json", "+xml", "+yaml"))


def readable(attachment: Attachment) -> bool:
    """Whether its words can be had, as far as one can tell before it is fetched."""
    return attachment.kind == "file" and is_text(attachment.name, attachment.mime)
