"""Holds COSE receipts of the log against scitt-cose, a verifier written by others.

usage: receipts.py FOLDER

FOLDER has keys.cbor (the COSE Key Set that the log serves), other.cbor (another log's) and cases.json: a list of
{"receipt": file, "entry": file, "size": tree size, "index": leaf index, "origin": origin}. Prints what was done; exits
with 1 if a receipt is refused, or anything changed is accepted.
"""

import hashlib
import json
import sys
from pathlib import Path

import cbor2
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from scitt_cose.receipt import verify_receipt

TREE_SIZE = -65537
folder = Path(sys.argv[1])
problems = []


def expect(condition, what):
    if not condition:
        problems.append(what)


def pem_of(name):
    """The key of a set of one, its kid checked to be the RFC 9679 thumbprint."""
    (key,) = cbor2.loads((folder / name).read_bytes())
    thumbprint = hashlib.sha256(cbor2.dumps({1: key[1], -1: key[-1], -2: key[-2]}, canonical=True)).digest()
    expect(key[2] == thumbprint, f"{name}: kid is {key[2].hex()}, the thumbprint {thumbprint.hex()}")
    expect((key[1], key[-1], key[3]) == (1, 6, -8), f"{name}: not an Ed25519 key for EdDSA")
    public = Ed25519PublicKey.from_public_bytes(key[-2])
    pem = public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return pem, thumbprint


def verify(receipt, entry, pem):
    """What a careful reader does: scitt-cose's check, and the proof's size against the signed one."""
    result = verify_receipt(receipt, leaf_entry_hex=entry.hex(), log_public_key_pem=pem)
    if not result.ok:
        return None
    claims = cbor2.loads(cbor2.loads(receipt).value[0])[15]
    return result if claims.get(TREE_SIZE) == result.tree_size else None


def with_proof(receipt, change):
    """The receipt with its unsigned proof changed."""
    protected, unprotected, payload, signature = cbor2.loads(receipt).value
    size, index, path = cbor2.loads(unprotected[396][-1][0])
    proof = cbor2.dumps(change(size, index, list(path)))
    return cbor2.dumps(cbor2.CBORTag(18, [protected, {396: {-1: [proof]}}, payload, signature]), canonical=True)


log_pem, kid = pem_of("keys.cbor")
other_pem, _ = pem_of("other.cbor")
changed = 0
misled = 0
for case in json.loads((folder / "cases.json").read_text()):
    name = f"{case['receipt']} (entry {case['index']} of {case['size']})"
    receipt = (folder / case["receipt"]).read_bytes()
    entry = (folder / case["entry"]).read_bytes()
    result = verify(receipt, entry, log_pem)
    if result is None:
        expect(False, f"{name} is refused: {verify_receipt(receipt, leaf_entry_hex=entry.hex(), log_public_key_pem=log_pem)}")
        continue
    expect((result.tree_size, result.leaf_index) == (case["size"], case["index"]), f"{name}: {result}")
    expect(result.issuer == case["origin"], f"{name}: issuer {result.issuer}")
    expect(result.subject == hashlib.sha256(entry).hexdigest(), f"{name}: subject {result.subject}")
    expect(result.protected_header_ext == {4: kid}, f"{name}: header {result.protected_header_ext}")
    expect(result.iat > 1_600_000_000, f"{name}: iat {result.iat}")
    expect(verify(receipt, entry, other_pem) is None, f"{name}: another key verifies it")
    expect(verify(receipt, entry + b"\0", log_pem) is None, f"{name}: another entry verifies")
    sizes = [lambda size, index, path, by=by: [size + by, index, path] for by in (-1, 1, 256)]
    indexes = [lambda size, index, path, by=by: [size, max(index + by, 0), path] for by in (-1, 1)]
    for change in sizes + indexes:
        forged = with_proof(receipt, change)
        if forged == receipt:
            continue
        changed += 1
        misled += verify_receipt(forged, leaf_entry_hex=entry.hex(), log_public_key_pem=log_pem).ok
        expect(verify(forged, entry, log_pem) is None, f"{name}: another place verifies")
    if case.get("every_byte"):
        for at in range(len(receipt)):
            damaged = bytearray(receipt)
            damaged[at] ^= 1
            changed += 1
            expect(verify(bytes(damaged), entry, log_pem) is None, f"{name}: byte {at} is not looked at")
for problem in problems:
    print(problem)
print(f"{changed} changed receipts, of which {misled} would pass without the signed size")
sys.exit(1 if problems else 0)
