"""Which windows of the token stream a leaf reads, written from docs/spec/plan.md#order and #init of profile.md alone."""

MASK = 0xFFFFFFFF


def philox4x32_10(counter, key):
    """Salmon, Moraes, Dror and Shaw 2011."""
    c, (k0, k1) = list(counter), key
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k0, b & MASK, (a >> 32) ^ c[3] ^ k1, a & MASK]
        k0, k1 = (k0 + 0x9E3779B9) & MASK, (k1 + 0xBB67AE85) & MASK
    return c


def window(sequence, windows, seed):
    """The window that sequence number `sequence` reads."""
    epoch, slot = divmod(sequence, windows)
    half = ((windows - 1).bit_length() + 1) // 2
    key = (seed & MASK, seed >> 32)
    while True:
        left, right = slot >> half, slot & ((1 << half) - 1)
        for round in range(8):
            word = philox4x32_10((right, round, epoch & MASK, epoch >> 32), key)[0]
            left, right = right, left ^ (word & ((1 << half) - 1))
        slot = left << half | right
        if slot < windows:
            return slot


def leaf_windows(step, leaf, leaves, sequences, windows, seed):
    """The windows of one leaf, in batch order."""
    first = (step * leaves + leaf) * sequences
    return [window(first + b, windows, seed) for b in range(sequences)]
