"""Reads what `client bundle --export --ledger` wrote with scitt-cose, a verifier written by others.

usage: exported.py FOLDER

FOLDER has the exported files and keys.cbor, the COSE Key Set that the log serves. Prints what was done; exits with 1 if a
receipt or a transparent statement is refused, or one of another entry is accepted.
"""

import sys
from pathlib import Path

import cbor2
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from scitt_cose.receipt import verify_receipt
from scitt_cose.statement import attach_receipts, parse_signed_statement

RECEIPTS = 394
folder = Path(sys.argv[1])
problems = []


def expect(condition, what):
    if not condition:
        problems.append(what)


def pem_of(raw):
    key = Ed25519PublicKey.from_public_bytes(raw)
    return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


(key,) = cbor2.loads((folder / "keys.cbor").read_bytes())
log = pem_of(key[-2])
names = sorted(path.name.removesuffix(".receipt.cbor") for path in folder.glob("*.receipt.cbor"))
entries = {name: (folder / f"{name}.cose").read_bytes() for name in names}
sizes = set()
for name, entry in entries.items():
    receipt = (folder / f"{name}.receipt.cbor").read_bytes()
    result = verify_receipt(receipt, leaf_entry_hex=entry.hex(), log_public_key_pem=log)
    expect(result.ok, f"{name}: {result}")
    expect(result.leaf_index == int(name.split("-")[0]), f"{name}: leaf index {result.leaf_index}")
    sizes.add(result.tree_size)
    for other, bytes_ in entries.items():
        misread = verify_receipt(receipt, leaf_entry_hex=bytes_.hex(), log_public_key_pem=log)
        expect(other == name or not misread.ok, f"{name}: its receipt passes for {other}")

    transparent = (folder / f"{name}.transparent.cose").read_bytes()
    ours = cbor2.loads(transparent).value
    theirs = cbor2.loads(attach_receipts(entry, [receipt])).value
    expect(list(ours) == list(theirs), f"{name}: not what attach_receipts makes")
    expect([bytes(one) for one in ours[1][RECEIPTS]] == [receipt], f"{name}: other receipts within")
    signer = cbor2.loads(ours[0])[4]
    statement = parse_signed_statement(transparent, public_key_pem=pem_of(signer))
    expect(statement["signature_verified"] is True, f"{name}: {statement}")
expect(len(sizes) == 1, f"receipts of trees of sizes {sizes}")
for problem in problems:
    print(problem)
print(f"{len(names)} receipts verified")
sys.exit(1 if problems or not names else 0)
