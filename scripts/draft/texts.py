"""Free texts out of Debian packages: novels, the World English Bible, Python's documentation, its
standard library, and WordNet.

Packages are fetched by ``apt-get download`` and unpacked, not installed. Each reader gives plain
paragraphs; ``SOURCES`` names what is read and under which licence.
"""

from __future__ import annotations

import ast
import bz2
import html
import lzma
import re
import shutil
import struct
import subprocess
import textwrap
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SOURCES: dict[str, tuple[str, str]] = {
    "r-cran-janeaustenr": ("six novels by Jane Austen", "public domain"),
    "sword-text-web": ("the World English Bible", "public domain"),
    "python3.11-doc": ("the Python documentation", "PSF-2.0"),
    "libpython3.11-stdlib": ("functions of Python's standard library", "PSF-2.0"),
    "wordnet-base": ("nouns and glosses of WordNet 3.0", "WordNet licence (BSD-like)"),
}


class SourceError(RuntimeError):
    """A text source could not be fetched or is not in the form that its reader knows."""


def unpacked(package: str, cache: Path) -> Path:
    """Folder with a Debian package's files, fetched at the first call.

    Raises:
        SourceError: no apt-get or dpkg-deb here, or the package cannot be had.
    """
    folder = cache / "sources" / package
    if folder.is_dir():
        return folder
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        raise SourceError(
            f"{package} is fetched with apt-get, which this system lacks; run on Debian or Ubuntu, "
            f"or unpack the package into {folder}"
        )
    scratch = folder.with_name(f".{package}.part")
    shutil.rmtree(scratch, ignore_errors=True)
    (scratch / "deb").mkdir(parents=True)
    got = subprocess.run(
        ["apt-get", "download", "-q", package],
        cwd=scratch / "deb",
        capture_output=True,
        text=True,
        check=False,
    )
    debs = list((scratch / "deb").glob("*.deb"))
    if got.returncode or len(debs) != 1:
        raise SourceError(f"apt-get download {package} failed (apt-get update?): {got.stderr}")
    subprocess.run(["dpkg-deb", "-x", str(debs[0]), str(scratch / "x")], check=True)
    (scratch / "x").rename(folder)
    shutil.rmtree(scratch)
    return folder


def _r_strings(block: bytes) -> list[str]:
    """Strings of the first character vector (STRSXP, type 16) in an R serialisation."""
    start = block.find(b"\x00\x00\x00\x10")
    if start < 0:
        raise SourceError("no character vector in the R data block")
    (count,) = struct.unpack(">i", block[start + 4 : start + 8])
    at, out = start + 8, []
    for _ in range(count):
        flags, length = struct.unpack(">Ii", block[at : at + 8])
        if flags & 0xFF != 9:
            raise SourceError(f"element of type {flags & 0xFF} among R strings")
        at += 8
        latin1 = bool((flags >> 12) & 4)
        if length >= 0:
            out.append(block[at : at + length].decode("latin-1" if latin1 else "utf-8"))
            at += length
        else:
            out.append("")
    return out


def austen(cache: Path) -> list[list[str]]:
    """The novels, each a list of paragraphs.

    The R database is a row of blocks: big-endian length, for bzip2 and xz a tag, compressed data.
    """
    folder = unpacked("r-cran-janeaustenr", cache)
    data = next(folder.rglob("data/Rdata.rdb")).read_bytes()
    novels, at = [], 0
    while at < len(data):
        tag = data[at + 4 : at + 5]
        if tag == b"2":
            bz = bz2.BZ2Decompressor()
            block, rest = bz.decompress(data[at + 5 :]), bz.unused_data
        elif tag == b"Z":
            xz = lzma.LZMADecompressor(
                lzma.FORMAT_RAW, filters=[{"id": lzma.FILTER_LZMA2, "preset": 6}]
            )
            block, rest = xz.decompress(data[at + 5 :]), xz.unused_data
        else:
            z = zlib.decompressobj()
            block, rest = z.decompress(data[at + 4 :]), z.unused_data
        at = len(data) - len(rest)
        text = "\n".join(_r_strings(block))
        paragraphs = (re.sub(r"\s+", " ", p).strip() for p in re.split(r"\n\s*\n", text))
        novels.append([p for p in paragraphs if p])
    return novels


def bible(cache: Path) -> list[str]:
    """Verses in order. SWORD's zText: block index .bzs, verse index .bzv, zlib data .bzz."""
    folder = next(unpacked("sword-text-web", cache).rglob("ot.bzs")).parent
    verses = []
    for testament in ("ot", "nt"):
        blocks_at = (folder / f"{testament}.bzs").read_bytes()
        data = (folder / f"{testament}.bzz").read_bytes()
        index = (folder / f"{testament}.bzv").read_bytes()
        blocks = [
            zlib.decompress(data[o : o + n]) if n else b""
            for o, n, _ in struct.iter_unpack("<III", blocks_at)
        ]
        for block, start, length in struct.iter_unpack("<IIH", index):
            if length == 0 or block >= len(blocks):
                continue
            verse = blocks[block][start : start + length].decode("utf-8", "ignore")
            verse = re.sub(r"<(note|title).*?</\1>", "", verse, flags=re.DOTALL)
            verse = html.unescape(re.sub(r"<[^>]+>", " ", verse))
            verse = re.sub(r"\s+", " ", verse).strip()
            if verse:
                verses.append(re.sub(r" ([,.;:?!’”])", r"\1", verse))
    return verses


def python_docs(cache: Path) -> list[tuple[str, str]]:
    """(path, reStructuredText) of the library, tutorial, reference, howto, faq and using parts."""
    root = next(unpacked("python3.11-doc", cache).rglob("_sources"))
    parts = ("library", "tutorial", "reference", "howto", "faq", "using")
    return [
        (str(path.relative_to(root)), path.read_text(encoding="utf-8"))
        for part in parts
        for path in sorted((root / part).glob("*.txt"))
        if path.name not in {"turtle.rst.txt", "unicodedata.rst.txt"}
    ]


def prose(rst: str) -> Iterator[str]:
    """Paragraphs of running prose in reStructuredText, roles reduced to their text."""
    for paragraph in re.split(r"\n\s*\n", rst):
        if paragraph.startswith((" ", "..", "\t")) or len(paragraph) < 120:
            continue
        if re.search(r"^[=\-~^*#+|]{4,}", paragraph, flags=re.MULTILINE):
            continue
        line = re.sub(r":[\w:+-]+:`~?([^`<]*)[^`]*`", r"\1", paragraph)
        yield re.sub(r"\s+", " ", line.replace("``", "`")).replace("::", ":").strip()


def python_functions(cache: Path, longest: int = 900) -> list[tuple[str, str]]:
    """(name, source) of the standard library's functions of 5 lines and more, up to ``longest``
    characters."""
    found = []
    root = next(unpacked("libpython3.11-stdlib", cache).glob("usr/lib/python3.*"))
    for path in sorted(root.glob("*.py")) + sorted((root / "json").glob("*.py")):
        if path.name.startswith("_") or not path.is_file():  # some are dangling links
            continue
        source = path.read_text(encoding="utf-8", errors="replace")
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("__"):
                text = textwrap.dedent(ast.get_source_segment(source, node, padded=True) or "")
                if 120 <= len(text) <= longest and text.count("\n") >= 4:
                    found.append((node.name, text))
    return found


@dataclass(frozen=True)
class Noun:
    """A noun that people use, with the first gloss that WordNet gives it."""

    word: str
    kind: int  # WordNet's lexicographer file: 5 animal, 6 artifact, 13 food, 15 location, ...
    gloss: str


def nouns(cache: Path) -> list[Noun]:
    """Nouns seen in WordNet's tagged texts, most frequent first; names of people left out."""
    folder = unpacked("wordnet-base", cache) / "usr/share/wordnet"
    seen: dict[tuple[str, int], int] = {}
    for line in (folder / "cntlist.rev").read_text().splitlines():
        key, _sense, count = line.split()
        word, rest = key.split("%")
        if rest.startswith("1:"):
            seen[word, int(rest.split(":")[1])] = int(count)
    out: dict[str, tuple[int, Noun]] = {}
    for line in (folder / "data.noun").read_text().splitlines():
        if line.startswith("  "):
            continue
        head, _, gloss = line.partition(" | ")
        fields = head.split()
        kind, words = int(fields[1]), fields[4 : 4 + 2 * int(fields[3], 16) : 2]
        if "@i" in fields:  # an instance: a single person or place
            continue
        for word in words:
            count = seen.get((word.lower(), kind), 0)
            if count and (word not in out or out[word][0] < count):
                noun = Noun(word.replace("_", " "), kind, gloss.split(";")[0].strip())
                out[word] = (count, noun)
    ordered = sorted(out.values(), key=lambda item: (-item[0], item[1].word))
    return [noun for _, noun in ordered]
