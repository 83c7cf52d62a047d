// Folds of what a kernel writes, added up as it is written (docs/spec/checksum.md#folds). Integers: no order.
//
// A kernel that records takes KEY and, for each f32 output y, SUMS(y) after its other parameters. KEY is 1024 t_j, then
// 1024 t'_j, and then a pair f, f' of each block; SUMS(y) takes a triple (a, b, how many words are not finite) of each
// group, at the group's number. Within: FOLDING first, FOLD(y) for each output, FOLD_ONE or FOLD_RUN for what is
// written, and FOLD_END(y) once, reached by all items.

#define ITEMS_MAX 256
#define KEY TENSOR(const ulong, key)
#define SUMS(y) TENSOR(ulong, y##_sums)

#ifdef RECORDED
#define FOLDING \
    SHARED ulong fold_space[3 * ITEMS_MAX]; \
    AT(const ulong, key)
#define FOLD(y) \
    Fold y##_fold = {0, 0, 0}; \
    AT(ulong, y##_sums)
#define FOLD_ONE(y, i, value) fold_word(&y##_fold, word_of(value), bits_of(value), i, key)
#define FOLD_RUN(y, first, end, step) fold_run(&y##_fold, y, first, end, step, key)
#define FOLD_U32(y, i, value) fold_word(&y##_fold, value, 0, i, key)
#define FOLD_END(y) fold_end(y##_fold, y##_sums, fold_space)
#else
#define FOLDING
#define FOLD(y)
#define FOLD_ONE(y, i, value)
#define FOLD_RUN(y, first, end, step)
#define FOLD_U32(y, i, value)
#define FOLD_END(y)
#endif

typedef struct {
    ulong a;
    ulong b;
    ulong bad;
} Fold;

// Every NaN is one word.
FUNCTION uint word_of(float x) { return is_nan(x) ? 0x7fc00000u : bits_of(x); }

FUNCTION void fold_word(Fold *fold, uint word, uint bits, ulong i, GLOBAL const ulong *key) {
    const ulong w = word;
    GLOBAL const ulong *t = key + i % 1024;
    GLOBAL const ulong *f = key + 2048 + 2 * (i / 1024);
    fold->a += w * (t[0] * f[0]);
    fold->b += (w * w) * (t[1024] * f[1]);
    fold->bad += (bits & 0x7f800000u) == 0x7f800000u ? 1u : 0u;
}

// The f32 words first, first + step, ... below end of a tensor.
FUNCTION void fold_run(Fold *fold, GLOBAL const float *y, ulong first, ulong end, ulong step, GLOBAL const ulong *key) {
#ifdef STAGED
    for (ulong i = first; i < end; i += step) {
        fold_word(fold, word_of(y[i]), bits_of(y[i]), i, key);
    }
#else
    // The step is 1. A block's factors are common to its words, so they multiply the sums once.
    while (first < end) {
        const ulong block = first / 1024;
        const ulong next = 1024 * (block + 1) < end ? 1024 * (block + 1) : end;
        const uint n = (uint)(next - first);
        GLOBAL const float *x = y + first;
        GLOBAL const ulong *t = key + first % 1024;
        ulong a = 0, b = 0;
        uint bad = 0;
        for (uint j = 0; j < n; j++) {
            const uint bits = bits_of(x[j]);
            const ulong w = (bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc00000u : bits;
            a += w * t[j];
            b += (w * w) * t[1024 + j];
            bad += (bits & 0x7f800000u) == 0x7f800000u ? 1u : 0u;
        }
        GLOBAL const ulong *f = key + 2048 + 2 * block;
        fold->a += a * f[0];
        fold->b += b * f[1];
        fold->bad += bad;
        first = next;
    }
#endif
}

// Adds the items' sums and writes the group's triple.
FUNCTION void fold_end(Fold fold, GLOBAL ulong *sums, IN_SHARED ulong *space) {
    GLOBAL ulong *triple = sums + 3 * ((ulong)GROUPS_X * GROUP_Y + GROUP_X);
    space[3 * ITEM] = fold.a;
    space[3 * ITEM + 1] = fold.b;
    space[3 * ITEM + 2] = fold.bad;
    BARRIER();
#ifdef STAGED
    for (uint s = ITEMS_MAX / 2; s > 0; s /= 2) {
        if (ITEM < s && ITEM + s < ITEMS) {
            for (uint part = 0; part < 3; part++) space[3 * ITEM + part] += space[3 * (ITEM + s) + part];
        }
        BARRIER();
    }
    if (ITEM < 3) triple[ITEM] = space[ITEM];
#else
    if (ITEM == 0) {
        for (uint part = 0; part < 3; part++) {
            ulong sum = 0;
            for (uint item = 0; item < ITEMS; item++) sum += space[3 * item + part];
            triple[part] = sum;
        }
    }
#endif
    // The space is used again by the next output.
    BARRIER();
}
