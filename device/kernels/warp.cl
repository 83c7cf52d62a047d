// How kernels walk over elements, rows and columns. Nothing here changes a bit of a result.
//
// Staged, a row is the work of 32 items, an element and a column of one. Otherwise a row, a slice of elements and 32
// columns are the work of one item, whose inner loops become vectors.

#ifdef STAGED
#define LANES 32u
#define OWN_LANES 1
#define OWN_COLUMNS 1
#define STEP ITEMS
#define ROW_STEP 32u
#else
#define LANES 1u
#define OWN_LANES 32
#define OWN_COLUMNS 32
#define STEP 1
#define ROW_STEP 1
#endif

// The item's part of n elements, of which a group takes `blocks` blocks of 1024: own_first, + STEP, ... below own_end.
#define ELEMENTS(n, blocks) \
    const ulong group_first = (ulong)GROUP_X * (blocks) * 1024; \
    const ulong group_end = group_first + (ulong)(blocks) * 1024 < (n) ? group_first + (ulong)(blocks) * 1024 : (n); \
    ELEMENTS_OF_ITEM
#ifdef STAGED
#define ELEMENTS_OF_ITEM const ulong own_first = group_first + ITEM, own_end = group_end
#else
#define ELEMENTS_OF_ITEM \
    const ulong own_first = group_first + (group_end - group_first) * ITEM / ITEMS; \
    const ulong own_end = group_first + (group_end - group_first) * (ITEM + 1) / ITEMS
#endif

// For each row of the group's `each`. A row that there is not has no elements: `here` is 0 then, else `width`. All
// items go round as often, since they meet in sums.
#define EACH_ROW(row, here, rows, width, each) \
    for (uint row##_ = 0; row##_ < (each); row##_ += ITEMS / LANES) { \
        const ulong row = (ulong)GROUP_X * (each) + row##_ + ITEM / LANES; \
        const uint here = row##_ + ITEM / LANES < (each) && row < (rows) ? (width) : 0;
#define END_ROW }

// The item's elements of a row: i from ROW_FIRST.
#define ROW_FIRST (ITEM % LANES)
#define IN_ROW(i, n) for (uint i = ROW_FIRST; i < (n); i += ROW_STEP)

// The lanes of a row's sum: `lane[l]` takes i = l, l + 32, ... ascending, of the lanes that are this item's.
#ifdef STAGED
#define IN_LANES(l, i, n, body) \
    { \
        const uint l = 0; \
        for (uint i = ITEM % 32; i < (n); i += 32) { body } \
    }
#else
#define IN_LANES(l, i, n, body) \
    { \
        uint first_ = 0; \
        for (; first_ + 32 <= (n); first_ += 32) { \
            for (uint l = 0; l < 32; l++) { \
                const uint i = first_ + l; \
                body \
            } \
        } \
        for (uint l = 0; first_ + l < (n); l++) { \
            const uint i = first_ + l; \
            body \
        } \
    }
#endif

// Shared memory in which the lanes of a row meet, and where this item's row has its part.
#define MEETING SHARED float meeting_space[ITEMS_MAX]
#define MEET (meeting_space + ITEM / 32 * 32)

FUNCTION void lanes_start(float *lane, float value) {
    for (uint l = 0; l < OWN_LANES; l++) lane[l] = value;
}

// Order     for s in 16, 8, 4, 2, 1: lane[i] = lane[i] + lane[i + s] for i < s; lane[0] is the sum
// Source    docs/spec/profile.md#warp32
FUNCTION float lanes_sum(float *lane, IN_SHARED float *meet) {
#ifdef STAGED
    const uint i = ITEM % 32;
    meet[i] = lane[0];
    BARRIER();
    for (uint s = 16; s > 0; s /= 2) {
        if (i < s) meet[i] = f_add(meet[i], meet[i + s]);
        BARRIER();
    }
    const float sum = meet[0];
    BARRIER();
    return sum;
#else
    for (uint s = 16; s > 0; s /= 2) {
        for (uint i = 0; i < s; i++) lane[i] = f_add(lane[i], lane[i + s]);
    }
    return lane[0];
#endif
}

// The same with the larger in place of the sum.
FUNCTION float lanes_larger(float *lane, IN_SHARED float *meet) {
#ifdef STAGED
    const uint i = ITEM % 32;
    meet[i] = lane[0];
    BARRIER();
    for (uint s = 16; s > 0; s /= 2) {
        if (i < s) meet[i] = larger(meet[i], meet[i + s]);
        BARRIER();
    }
    const float largest = meet[0];
    BARRIER();
    return largest;
#else
    for (uint s = 16; s > 0; s /= 2) {
        for (uint i = 0; i < s; i++) lane[i] = larger(lane[i], lane[i + s]);
    }
    return lane[0];
#endif
}

// The item's columns: from own_column on, own_columns of them, none if there are no more.
#define COLUMNS(width) \
    const ulong own_column = ((ulong)GROUP_X * ITEMS + ITEM) * OWN_COLUMNS; \
    const uint own_columns = own_column >= (width)             ? 0 \
                             : (width) - own_column > OWN_COLUMNS ? OWN_COLUMNS \
                                                               : (uint)((width) - own_column)
