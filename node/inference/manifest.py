"""A model's manifest: what `modelId` is the hash of (protocol, "Identity").

Float tiers: weightsRoot is the Merkle root, in ascending order of tensor names, over
keccak256(0x00 ‖ name ‖ 0x00 ‖ dtype ‖ uint32 dims… ‖ sha256(data)), so the same weights in other
shards are the same model. Exact tier: the root over quantised rows (`exact.commitment`).

Either takes seconds for half a gigabyte; the result is kept beside the cache under the files'
names, sizes and times, and recomputed when any of them changes.
"""

from __future__ import annotations

import hashlib
import json
import struct
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from node.inference.architecture import ModelError, read_json
from node.inference.catalog import default_cache_dir
from node.inference.exact.commitment import VERSION
from node.inference.tokens import Tokenizer
from settlement.hashing import keccak256, uint
from settlement.records import Manifest, Tier
from settlement.trees import merkle_root

_TIERS: Final = {"exact": Tier.EXACT, "float32": Tier.FLOAT32, "bfloat16": Tier.BFLOAT16}
_MAX_HEADER: Final = 1 << 26
_CHUNK: Final = 1 << 22


def manifest_of(
    folder: Path,
    dtype: str,
    *,
    cache_dir: Path | None = None,
    progress: Callable[[str], None] = lambda line: None,
) -> Manifest:
    """The manifest of the Hugging Face model in `folder`, run in `dtype`.

    Raises ModelError for a folder without safetensors, tokenizer or a readable config.
    """
    if dtype not in _TIERS:
        raise ModelError(f"dtype {dtype!r}: must be one of {', '.join(_TIERS)}")
    config = read_json(folder / "config.json")
    tokenizer = Tokenizer.load(folder)
    return Manifest(
        architecture=str(config.get("model_type", "unknown"))[:64],
        tier=_TIERS[dtype],
        weights_root=_weights_root(folder, dtype, cache_dir or default_cache_dir(), progress),
        tokenizer_hash=tokenizer.vocabulary_hash,
        vocab_size=_count(folder, config, "vocab_size", None),
        eos_ids=eos_ids(folder, config),
        context_length=_count(folder, config, "max_position_embeddings", 2048),
    )


def _count(folder: Path, config: dict[str, Any], name: str, default: int | None) -> int:
    value = config.get(name, default)
    if type(value) is not int or not 0 < value < 1 << 32:
        raise ModelError(f"{folder / 'config.json'}: {name} is {value!r}, no count")
    return value


def eos_ids(folder: Path, config: dict[str, Any]) -> tuple[int, ...]:
    """End-of-sequence ids, ascending, from generation_config.json where there is one."""
    found = config.get("eos_token_id")
    if (folder / "generation_config.json").exists():
        found = read_json(folder / "generation_config.json").get("eos_token_id", found)
    ids = found if isinstance(found, list) else [] if found is None else [found]
    if not all(type(token) is int and 0 <= token < 1 << 32 for token in ids):
        raise ModelError(f"{folder}: eos_token_id is {found!r}: a token id or a list of them")
    return tuple(sorted(set(ids)))


def _weights_root(folder: Path, dtype: str, cache: Path, progress: Callable[[str], None]) -> bytes:
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise ModelError(f"{folder} has no .safetensors file")
    exact = dtype == "exact"
    # Beside the tensors, the exact root depends on what the config says of sizes and rotation.
    stamped = [*files, folder / "config.json", *folder.glob("*.npy")] if exact else files
    stamp = [[f.name, f.stat().st_size, f.stat().st_mtime_ns] for f in stamped]
    if exact:
        stamp.append(["exact", VERSION, 0])
    name = keccak256(json.dumps([str(folder.resolve()), stamp]).encode()).hex()
    kept = cache / "manifests" / name
    if kept.exists():
        raw = bytes.fromhex(kept.read_text().strip())
        if len(raw) == 32:
            return raw
    progress(f"hashing the weights in {folder}")
    root = _exact_root(folder) if exact else _float_root(files)
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=kept.parent, delete=False) as out:
        out.write(root.hex())
    Path(out.name).replace(kept)
    return root


def _float_root(files: list[Path]) -> bytes:
    leaves = dict(leaf for file in files for leaf in _leaves(file))
    return merkle_root([leaves[key] for key in sorted(leaves)])


def _exact_root(folder: Path) -> bytes:
    from node.inference.exact.commitment import Commitment
    from node.inference.exact.quantise import load_integers

    return Commitment(load_integers(folder)).root


def _leaves(file: Path) -> Iterator[tuple[str, bytes]]:
    """(name, leaf) of every tensor of one safetensors file."""
    with file.open("rb") as raw:
        head = raw.read(8)
        if len(head) < 8:
            raise ModelError(f"{file} is not a safetensors file")
        (size,) = struct.unpack("<Q", head)
        if size > _MAX_HEADER:
            raise ModelError(f"{file}: a header of {size} bytes")
        try:
            header = json.loads(raw.read(size))
        except ValueError as error:
            raise ModelError(f"{file}: its header is not JSON") from error
        if not isinstance(header, dict):
            raise ModelError(f"{file}: its header is no JSON object")
        start = 8 + size
        for name, entry in sorted(header.items()):
            if name == "__metadata__":
                continue
            try:
                begin, end = map(int, entry["data_offsets"])
                shape = b"".join(uint(int(dim), 4) for dim in entry["shape"])
                kind = str(entry["dtype"]).encode()
                raw.seek(start + begin)
            except (KeyError, TypeError, ValueError, OverflowError, OSError) as error:
                raise ModelError(f"{file}: its header says of {name}: {entry!r}") from error
            digest, left = hashlib.sha256(), end - begin
            while left:
                chunk = raw.read(min(left, _CHUNK))
                if not chunk:
                    raise ModelError(f"{file} ends inside {name}")
                digest.update(chunk)
                left -= len(chunk)
            yield name, keccak256(b"\x00", name.encode(), b"\x00", kind, shape, digest.digest())
