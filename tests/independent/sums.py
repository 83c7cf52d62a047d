"""Digests, checksums, folds and the encoding, from docs/spec/README.md and docs/spec/checksum.md."""

import hashlib
import struct

import numpy as np

NAN = 0x7FC00000


def digest(domain, data):
    return hashlib.sha256(b"tallystick/v1/" + domain.encode() + b"\x00" + data).digest()


def words_of(tensor):
    """A tensor as 32-bit words, every f32 NaN made one pattern."""
    if tensor.dtype == np.uint32:
        return tensor.reshape(-1)
    words = np.ascontiguousarray(tensor).view(np.uint32).reshape(-1).copy()
    words[np.isnan(tensor.reshape(-1))] = NAN
    return words


def merkle(chunks):
    if len(chunks) == 1:
        return hashlib.sha256(b"\x00" + chunks[0]).digest()
    split = 1 << ((len(chunks) - 1).bit_length() - 1)
    return hashlib.sha256(b"\x01" + merkle(chunks[:split]) + merkle(chunks[split:])).digest()


def checksum(tensor):
    """Of a tensor taken as flat: shape [n]."""
    data = words_of(tensor).astype("<u4").tobytes()
    root = merkle([data[i : i + 4096] for i in range(0, len(data), 4096)])
    dtype = 2 if tensor.dtype == np.uint32 else 1
    return digest("checksum", bytes([dtype, 1]) + struct.pack("<Q", tensor.size) + root)


class Folds:
    """Folds under one key."""

    def __init__(self, key):
        self.key = key
        self.table = self.coefficients("fold/table", range(1024))
        self.factor = self.coefficients("fold/factor", range(0))

    def coefficients(self, domain, numbers):
        pairs = [digest(domain, self.key + struct.pack("<Q", j))[:16] for j in numbers]
        return np.frombuffer(b"".join(pairs), "<u8").reshape(-1, 2) | np.uint64(1)

    def __call__(self, tensor):
        words = words_of(tensor).astype(np.uint64)
        blocks = (words.size + 1023) // 1024
        if len(self.factor) < blocks:
            more = self.coefficients("fold/factor", range(len(self.factor), blocks))
            self.factor = np.concatenate([self.factor, more])
        i = np.arange(words.size)
        k = self.table[i % 1024] * self.factor[i // 1024]
        a = np.add.reduce(words * k[:, 0], dtype=np.uint64)
        b = np.add.reduce(words * words * k[:, 1], dtype=np.uint64)
        return struct.pack("<QQ", int(a), int(b))


def encode(value):
    """Deterministic CBOR of integers from zero, byte strings, text, lists and maps."""
    if isinstance(value, int):
        return head(0, value)
    if isinstance(value, bytes):
        return head(2, len(value)) + value
    if isinstance(value, str):
        return head(3, len(value.encode())) + value.encode()
    if isinstance(value, list):
        return head(4, len(value)) + b"".join(map(encode, value))
    items = sorted((encode(key), encode(item)) for key, item in value.items())
    return head(5, len(items)) + b"".join(key + item for key, item in items)


def head(major, number):
    if number < 24:
        return bytes([major << 5 | number])
    size = next(i for i in range(4) if number < 1 << (8 << i))
    return bytes([major << 5 | 24 + size]) + number.to_bytes(1 << size, "big")


def decode(data):
    value, rest = take(memoryview(data))
    assert not rest, "bytes after the object"
    return value


def take(data):
    major, number, data = data[0] >> 5, data[0] & 31, data[1:]
    if major == 7:
        return {20: False, 21: True}[number], data
    if number >= 24:
        size = 1 << (number - 24)
        number, data = int.from_bytes(data[:size], "big"), data[size:]
    if major == 0:
        return number, data
    if major in (2, 3):
        taken = bytes(data[:number])
        return (taken if major == 2 else taken.decode()), data[number:]
    items = []
    for _ in range(number * (major - 3)):
        item, data = take(data)
        items.append(item)
    return (items if major == 4 else dict(zip(items[::2], items[1::2]))), data
