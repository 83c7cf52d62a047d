// Folds and checksums of flat f32 vectors (docs/spec/checksum.md). Integers only: sums have no order.

// A word as checksums and folds take it: every NaN is one word.
FUNCTION uint one_nan(uint word) { return (word & 0x7fffffffu) > 0x7f800000u ? 0x7fc00000u : word; }

// Most work-items of a group of fold_words.
#define FOLD_ITEMS 256

// Sums of a vector's words under a key: each group writes a triple at its number.
//
// Shapes    words: [n] (read), key: [2, 1024] t_j, then t'_j, then [blocks, 2] f and f' of each block (read); sums:
//           [groups, 3] (written): a, b, and how many words are not finite; a group takes blocks_each blocks of 1024
// Order     none: integers modulo 2^64
// Rounding  none
// Special   a NaN is the word 0x7fc00000
// Aliasing  none
// Source    docs/spec/checksum.md#folds
KERNEL fold_words(TENSOR(const uint, words), TENSOR(const ulong, key), TENSOR(ulong, sums), ulong n,
                  ulong blocks_each) {
    AT(const uint, words);
    AT(const ulong, key);
    AT(ulong, sums);
    SHARED ulong shared_a[FOLD_ITEMS];
    SHARED ulong shared_b[FOLD_ITEMS];
    SHARED ulong shared_c[FOLD_ITEMS];
    ulong a = 0, b = 0, c = 0;
    const ulong blocks = (n + 1023) / 1024;
    const ulong first = GROUP_X * blocks_each;
    const ulong end = first + blocks_each < blocks ? first + blocks_each : blocks;
    for (ulong block = first; block < end; block++) {
        GLOBAL const uint *x = words + 1024 * block;
        const uint here = n - 1024 * block < 1024 ? (uint)(n - 1024 * block) : 1024;
        ulong block_a = 0, block_b = 0;
        uint bad = 0;
        for (uint j = ITEM; j < here; j += ITEMS) {
            const ulong w = one_nan(x[j]);
            bad += (x[j] & 0x7f800000u) == 0x7f800000u ? 1u : 0u;
            block_a += w * key[j];
            block_b += w * w * key[1024 + j];
        }
        a += block_a * key[2 * (1024 + block)];
        b += block_b * key[2 * (1024 + block) + 1];
        c += bad;
    }
    shared_a[ITEM] = a;
    shared_b[ITEM] = b;
    shared_c[ITEM] = c;
    BARRIER();
    if (ITEM != 0) return;
    for (uint i = 1; i < ITEMS; i++) {
        a += shared_a[i];
        b += shared_b[i];
        c += shared_c[i];
    }
    sums[3 * GROUP_X] = a;
    sums[3 * GROUP_X + 1] = b;
    sums[3 * GROUP_X + 2] = c;
}

// The sums of every tap of a leaf: a group adds the triples of one.
//
// Shapes    sums: triples (read), lists: [taps, 2] (read), where a tap's triples begin and how many they are; out:
//           [taps, 3] (written)
// Order     none: integers modulo 2^64
// Rounding  none
// Special   none
// Aliasing  none
// Source    docs/spec/checksum.md#folds
KERNEL finish_folds(TENSOR(const ulong, sums), TENSOR(const ulong, lists), TENSOR(ulong, out)) {
    AT(const ulong, sums);
    AT(const ulong, lists);
    AT(ulong, out);
    SHARED ulong shared_parts[3 * FOLD_ITEMS];
    GLOBAL const ulong *triples = sums + lists[2 * GROUP_X];
    const ulong count = lists[2 * GROUP_X + 1];
    for (uint part = 0; part < 3; part++) {
        ulong sum = 0;
        for (ulong i = ITEM; i < count; i += ITEMS) sum += triples[3 * i + part];
        shared_parts[3 * ITEM + part] = sum;
    }
    BARRIER();
    if (ITEM != 0) return;
    for (uint part = 0; part < 3; part++) {
        ulong sum = 0;
        for (uint i = 0; i < ITEMS; i++) sum += shared_parts[3 * i + part];
        out[3 * GROUP_X + part] = sum;
    }
}

// An item hashes so many messages side by side, a word of each in a HASHED: on a processor the words of a vector.
#if defined(STAGED) || defined(__CUDACC_RTC__)
#define HASHES 1
typedef uint HASHED;
#define hashed_from(words) ((words)[0])
#define hashed_to(words, x) ((words)[0] = (x))
#else
#define HASHES 16
typedef uint16 HASHED;
#define hashed_from(words) vload16(0, words)
#define hashed_to(words, x) vstore16(x, 0, words)
#endif

CONSTANT uint SHA256_K[64] = {
    0x428a2f98u, 0x71374491u, 0xb5c0fbcfu, 0xe9b5dba5u, 0x3956c25bu, 0x59f111f1u, 0x923f82a4u, 0xab1c5ed5u,
    0xd807aa98u, 0x12835b01u, 0x243185beu, 0x550c7dc3u, 0x72be5d74u, 0x80deb1feu, 0x9bdc06a7u, 0xc19bf174u,
    0xe49b69c1u, 0xefbe4786u, 0x0fc19dc6u, 0x240ca1ccu, 0x2de92c6fu, 0x4a7484aau, 0x5cb0a9dcu, 0x76f988dau,
    0x983e5152u, 0xa831c66du, 0xb00327c8u, 0xbf597fc7u, 0xc6e00bf3u, 0xd5a79147u, 0x06ca6351u, 0x14292967u,
    0x27b70a85u, 0x2e1b2138u, 0x4d2c6dfcu, 0x53380d13u, 0x650a7354u, 0x766a0abbu, 0x81c2c92eu, 0x92722c85u,
    0xa2bfe8a1u, 0xa81a664bu, 0xc24b8b70u, 0xc76c51a3u, 0xd192e819u, 0xd6990624u, 0xf40e3585u, 0x106aa070u,
    0x19a4c116u, 0x1e376c08u, 0x2748774cu, 0x34b0bcb5u, 0x391c0cb3u, 0x4ed8aa4au, 0x5b9cca4fu, 0x682e6ff3u,
    0x748f82eeu, 0x78a5636fu, 0x84c87814u, 0x8cc70208u, 0x90befffau, 0xa4506cebu, 0xbef9a3f7u, 0xc67178f2u};

CONSTANT uint SHA256_FIRST[8] = {0x6a09e667u, 0xbb67ae85u, 0x3c6ef372u, 0xa54ff53au,
                                 0x510e527fu, 0x9b05688cu, 0x1f83d9abu, 0x5be0cd19u};

FUNCTION HASHED turned(HASHED x, uint by) { return (x >> by) | (x << (32 - by)); }

FUNCTION uint bytes_turned(uint x) {
    return (x << 24) | ((x & 0xff00u) << 8) | ((x >> 8) & 0xff00u) | (x >> 24);
}

// SHA-256's compression of one block of each message, w of which is used up (FIPS 180-4, 6.2.2).
FUNCTION void compress(HASHED h[8], HASHED w[16]) {
    HASHED s0 = h[0], s1 = h[1], s2 = h[2], s3 = h[3], s4 = h[4], s5 = h[5], s6 = h[6], s7 = h[7];
    for (uint from = 0; from < 64; from += 16) {
#pragma unroll
        for (uint t = 0; t < 16; t++) {
            const HASHED one = s7 + (turned(s4, 6) ^ turned(s4, 11) ^ turned(s4, 25)) + ((s4 & s5) ^ (~s4 & s6)) +
                               SHA256_K[from + t] + w[t];
            const HASHED two = (turned(s0, 2) ^ turned(s0, 13) ^ turned(s0, 22)) + ((s0 & s1) ^ (s0 & s2) ^ (s1 & s2));
            s7 = s6;
            s6 = s5;
            s5 = s4;
            s4 = s3 + one;
            s3 = s2;
            s2 = s1;
            s1 = s0;
            s0 = one + two;
            // The schedule's word of 16 rounds later takes this one's place.
            const HASHED x = w[(t + 1) % 16], y = w[(t + 14) % 16];
            w[t] += (turned(x, 7) ^ turned(x, 18) ^ (x >> 3)) + w[(t + 9) % 16] +
                    (turned(y, 17) ^ turned(y, 19) ^ (y >> 10));
        }
    }
    h[0] += s0;
    h[1] += s1;
    h[2] += s2;
    h[3] += s3;
    h[4] += s4;
    h[5] += s5;
    h[6] += s6;
    h[7] += s7;
}

// The state before a message, of each of several.
FUNCTION void begin_hashes(HASHED h[8]) {
    for (uint i = 0; i < 8; i++) h[i] = (HASHED)SHA256_FIRST[i];
}

// A message's end: its last byte, the end mark, and how many bits it had.
FUNCTION void end_hashes(HASHED h[8], HASHED last, uint bits) {
    HASHED w[16];
    w[0] = (last << 24) | 0x00800000u;
    for (uint t = 1; t < 15; t++) w[t] = (HASHED)0u;
    w[15] = (HASHED)bits;
    compress(h, w);
}

// Hashes of several messages to their places, of which `here` exist.
FUNCTION void store_hashes(GLOBAL uint *hashes, HASHED h[8], ulong here) {
    for (uint i = 0; i < 8; i++) {
        uint words[HASHES];
        hashed_to(words, h[i]);
        for (uint l = 0; l < HASHES && l < here; l++) hashes[8 * l + i] = words[l];
    }
}

// Hashes of whole chunks: SHA-256(0x00 || chunk), as eight words.
//
// Shapes    words: [chunks, 1024] (read), hashes: [chunks, 8] (written)
// Order     none: integers
// Rounding  none
// Special   a NaN is the word 0x7fc00000
// Aliasing  none
// Source    docs/spec/checksum.md#checksums
KERNEL hash_chunks(TENSOR(const uint, words), TENSOR(uint, hashes), ulong chunks) {
    AT(const uint, words);
    AT(uint, hashes);
    const ulong first = ((ulong)GROUP_X * ITEMS + ITEM) * HASHES;
    if (first >= chunks) return;
    HASHED h[8], w[16];
    begin_hashes(h);
    // The byte 0x00 in front moves every word by a byte: `last` is the word whose last byte comes first.
    HASHED last = (HASHED)0u;
    for (uint block = 0; block < 64; block++) {
        uint now[16][HASHES];
        for (uint l = 0; l < HASHES; l++) {
            // Where there are fewer chunks, the last is hashed again.
            const ulong chunk = first + l < chunks ? first + l : chunks - 1;
            GLOBAL const uint *x = words + 1024 * chunk + 16 * block;
            for (uint t = 0; t < 16; t++) now[t][l] = bytes_turned(one_nan(x[t]));
        }
#pragma unroll
        for (uint t = 0; t < 16; t++) {
            const HASHED word = hashed_from(now[t]);
            w[t] = (last << 24) | (word >> 8);
            last = word;
        }
        compress(h, w);
    }
    end_hashes(h, last, 8 * 4097);
    store_hashes(hashes + 8 * first, h, chunks - first);
}

// Hash of the last chunk, which is shorter than the others. One item does it.
//
// Shapes    words: [n] (read), n from 1 to 1023; hash: [8] (written)
// Order     none: integers
// Rounding  none
// Special   a NaN is the word 0x7fc00000
// Aliasing  none
// Source    docs/spec/checksum.md#checksums
KERNEL hash_last(TENSOR(const uint, words), TENSOR(uint, hash), uint n) {
    AT(const uint, words);
    AT(uint, hash);
    if (GROUP_X != 0 || ITEM != 0) return;
    HASHED h[8], w[16];
    begin_hashes(h);
    // 4 n + 1 bytes, the end mark's byte and 8 of the length.
    const uint blocks = (4 * n + 1 + 9 + 63) / 64;
    uint before = 0;
    for (uint block = 0; block < blocks; block++) {
        for (uint t = 0; t < 16; t++) {
            const uint at = 16 * block + t;
            const uint now = at < n ? bytes_turned(one_nan(words[at])) : 0;
            // The end mark is the byte after the last word's.
            uint word = (before << 24) | (now >> 8);
            if (at == n) word |= 0x00800000u;
            if (block + 1 == blocks && t == 15) word = 8 * (4 * n + 1);
            w[t] = (HASHED)word;
            before = now;
        }
        compress(h, w);
    }
    store_hashes(hash, h, 1);
}

// One level of the Merkle tree: hashes of neighbours, SHA-256(0x01 || left || right); one left over goes up as it is.
//
// Shapes    below: [n, 8] (read), above: [(n + 1) / 2, 8] (written)
// Order     none: integers
// Rounding  none
// Special   none
// Aliasing  none
// Source    docs/spec/checksum.md#checksums
KERNEL hash_pairs(TENSOR(const uint, below), TENSOR(uint, above), ulong n) {
    AT(const uint, below);
    AT(uint, above);
    const ulong pairs = n / 2;
    const ulong first = ((ulong)GROUP_X * ITEMS + ITEM) * HASHES;
    if (first == 0 && n % 2 == 1) {
        for (uint i = 0; i < 8; i++) above[8 * pairs + i] = below[8 * (n - 1) + i];
    }
    if (first >= pairs) return;
    HASHED h[8], w[16];
    begin_hashes(h);
    uint now[16][HASHES];
    for (uint l = 0; l < HASHES; l++) {
        const ulong pair = first + l < pairs ? first + l : pairs - 1;
        for (uint t = 0; t < 16; t++) now[t][l] = below[16 * pair + t];
    }
    // The byte 0x01 in front.
    HASHED last = (HASHED)1u;
    for (uint t = 0; t < 16; t++) {
        const HASHED word = hashed_from(now[t]);
        w[t] = (last << 24) | (word >> 8);
        last = word;
    }
    compress(h, w);
    end_hashes(h, last, 8 * 65);
    store_hashes(above + 8 * first, h, pairs - first);
}
