"""Reads a whole log with the package tlog-scales, which others keep, and checks everything in it.

usage: read_log.py LOG VKEY    (LOG: a folder, as /path, or http://host:port)
"""

import sys

from tlog_scales import backend, tiles, tlog
from tlog_scales.reader import TilesReader
from tlog_scales.signing import Vkey
from tlog_scales.utils import b64enc


def near_boundaries(count):
    """All numbers below a small count, or those near the ends and near full tiles."""
    near = (0, 1, 2, 254, 255)
    return [n for n in range(count) if count <= 140 or n < 3 or n + 3 > count or n % 256 in near]


def main():
    place, vkey = sys.argv[1], Vkey.from_string(sys.argv[2])
    source = backend.make_backend(place)
    reader = TilesReader(source)
    checkpoint = reader.get_checkpoint()
    checkpoint.verify(vkey)
    assert checkpoint.origin == vkey.name, checkpoint.origin
    size, root = checkpoint.size, checkpoint.root_hash

    assert reader.calculate_root_hash() == root, "the tiles hash to another root than the signed one"
    leaves = [tiles.leaf_hash(reader.get_entry(index)) for index in range(size)]
    for index, leaf in enumerate(leaves):
        stored = reader.mth(index, index + 1)
        assert stored == leaf, f"entry {index} hashes to {b64enc(leaf)}, its tile has {b64enc(stored)}"

    for index in near_boundaries(size):
        reader.get_inclusion_proof(index, size).check(leaves[index], root)
    sizes = [old + 1 for old in near_boundaries(size)]
    for old in sizes:
        older_root = reader.mth(0, old)
        reader.get_consistency_proof(old, size).check(older_root, root)
        served = source.get("checkpoint", str(old)) if place.startswith("http:") else None
        if served is not None:
            older = tlog.Checkpoint.from_text(served.decode())
            older.verify(vkey)
            assert (older.size, older.root_hash) == (old, older_root), f"checkpoint/{old} is of another tree"
    print(f"size {size} root {b64enc(root)}: {len(leaves)} entries, {len(sizes)} consistency proofs")


main()
