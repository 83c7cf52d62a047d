// Matrix products, one or several side by side (the heads of an attention).
//
// Every output is one chain over k, ascending, of fma(a[k], b[k], acc) from +0 (docs/spec/profile.md#matmul). A chain is
// never padded: where outputs of a tile have chains of different length, what lies beyond is passed over.

// A matrix of unit `first` + GROUP_Y: units are heads of sequences, `share` of which have one matrix. `_ld` lies between
// the first words of its rows, `_shift` before all of them: the tensor may hold more than these matrices.
#define MATRIX(type, name) \
    TENSOR(type, name), uint name##_ld, uint name##_first, uint name##_heads, uint name##_share, ulong name##_batch, \
        ulong name##_head, ulong name##_shift
#define MATRIX_AT(name) \
    (matrix_at(name##_first + GROUP_Y, name##_heads, name##_share, name##_batch, name##_head) + name##_shift)

FUNCTION ulong matrix_at(uint unit, uint heads, uint share, ulong batch, ulong head) {
    return unit / heads * batch + unit % heads / share * head;
}

// Which k the chain of row i takes, and which outputs are wanted.
#define ALL 0u    // every k
#define UPTO 1u   // k <= i
#define FROM 2u   // k >= i
#define LOWER 3u  // every k, for outputs with column <= i; what else is written is nobody's

// What a product is given, beside its memory.
typedef struct {
    uint rows, inner, columns;
    // Which k, as above.
    uint limit;
    // So many pairs of matrices, one after the other in one chain, and the words between them.
    uint repeats;
    ulong a_repeat, b_repeat;
    // Words between rows.
    ulong a_ld, b_ld;
    // Whether a stands transposed: [inner, rows]; b: [columns, inner].
    uint a_turned, b_turned;
} Product;

#ifdef STAGED

// A group computes a tile of side x side outputs, each item 8 x 8 of them: rows in two runs of 4, columns too. Both
// factors come through shared memory, TILE_K of k at a time.
#define TILE_K 16
#define TILE_ROW(side) ((side) + 4)
#define TILE_SPACE(side) ((TILE_K * TILE_ROW(side)) / 4)

// Words of a tile that an item brings.
#define BRINGS(side) ((side) * TILE_K / (((side) / 8) * ((side) / 8)))

// Where word e of a tile lies: across and along k. Neighbouring items read neighbouring words.
FUNCTION void tile_word(uint e, uint side, uint along_k, uint *across, uint *k) {
    *across = along_k ? e / TILE_K : e % side;
    *k = along_k ? e % TILE_K : e / side;
}

// Compilers of OpenCL unroll by themselves, and PoCL's takes long over what it is told to. CUDA's would unroll what is
// seldom run, too.
#ifdef __CUDACC_RTC__
#define UNROLL _Pragma("unroll")
#define ROLLED _Pragma("unroll 1")
#else
#define UNROLL
#define ROLLED
#endif

FUNCTION void tile_bring(float *brought, uint side, uint brings, GLOBAL const float *from, ulong ld, uint along_k,
                         uint first, uint end, uint k0, uint inner) {
    UNROLL
    for (uint w = 0; w < brings; w++) {
        uint across, k;
        tile_word(ITEM + w * (side / 8) * (side / 8), side, along_k, &across, &k);
        const ulong i = first + across;
        const uint there = i < end && k0 + k < inner;
        const ulong at = along_k ? i * ld + k0 + k : (ulong)(k0 + k) * ld + i;
        brought[w] = there ? from[at] : 0.0f;
    }
}

FUNCTION void tile_keep(const float *brought, uint side, uint brings, uint along_k, IN_SHARED float *tile) {
    UNROLL
    for (uint w = 0; w < brings; w++) {
        uint across, k;
        tile_word(ITEM + w * (side / 8) * (side / 8), side, along_k, &across, &k);
        tile[k * TILE_ROW(side) + across] = brought[w];
    }
}

FUNCTION void tile_row(IN_SHARED const float *tile, uint side, uint k, uint place, float *eight) {
    IN_SHARED const float4 *four = (IN_SHARED const float4 *)(tile + k * TILE_ROW(side) + 4 * place);
    const float4 low = four[0], high = four[side / 8];
    eight[0] = low.x;
    eight[1] = low.y;
    eight[2] = low.z;
    eight[3] = low.w;
    eight[4] = high.x;
    eight[5] = high.y;
    eight[6] = high.z;
    eight[7] = high.w;
}

// Row (or column) j of an item's eight, within the tile.
FUNCTION uint tile_place(uint side, uint place, uint j) { return j < 4 ? 4 * place + j : side / 2 + 4 * place + j - 4; }

FUNCTION void product_tile(uint side, Product p, GLOBAL const float *a, GLOBAL const float *b, uint row0, uint column0,
                           IN_SHARED float *a_tile, IN_SHARED float *b_tile, float acc[8][8]) {
    const uint place_row = ITEM / (side / 8), place_column = ITEM % (side / 8);
    float a_brought[BRINGS(32)], b_brought[BRINGS(32)];
    const uint brings = BRINGS(side);
    const uint first = p.limit == FROM ? row0 / TILE_K * TILE_K : 0;
    const uint end = p.limit == UPTO && row0 + side < p.inner ? row0 + side : p.inner;
    for (uint repeat = 0; repeat < p.repeats; repeat++) {
        GLOBAL const float *left = a + repeat * p.a_repeat;
        GLOBAL const float *right = b + repeat * p.b_repeat;
        tile_bring(a_brought, side, brings, left, p.a_ld, !p.a_turned, row0, p.rows, first, p.inner);
        tile_bring(b_brought, side, brings, right, p.b_ld, p.b_turned, column0, p.columns, first, p.inner);
        for (uint k0 = first; k0 < end; k0 += TILE_K) {
            tile_keep(a_brought, side, brings, !p.a_turned, a_tile);
            tile_keep(b_brought, side, brings, p.b_turned, b_tile);
            BARRIER();
            if (k0 + TILE_K < end) {
                tile_bring(a_brought, side, brings, left, p.a_ld, !p.a_turned, row0, p.rows, k0 + TILE_K, p.inner);
                tile_bring(b_brought, side, brings, right, p.b_ld, p.b_turned, column0, p.columns, k0 + TILE_K, p.inner);
            }
            const uint whole = k0 + TILE_K <= p.inner && (p.limit != UPTO || k0 + TILE_K - 1 <= row0) &&
                               (p.limit != FROM || k0 + 1 >= row0 + side);
            if (whole) {
    UNROLL
                for (uint k = 0; k < TILE_K; k++) {
                    float x[8], y[8];
                    tile_row(a_tile, side, k, place_row, x);
                    tile_row(b_tile, side, k, place_column, y);
    UNROLL
                    for (uint i = 0; i < 8; i++) {
    UNROLL
                        for (uint j = 0; j < 8; j++) acc[i][j] = f_fma(x[i], y[j], acc[i][j]);
                    }
                }
            } else {
                const uint depth = k0 + TILE_K <= p.inner ? TILE_K : p.inner - k0;
                ROLLED
                for (uint k = 0; k < depth; k++) {
                    float x[8], y[8];
                    tile_row(a_tile, side, k, place_row, x);
                    tile_row(b_tile, side, k, place_column, y);
    UNROLL
                    for (uint i = 0; i < 8; i++) {
                        const uint row = row0 + tile_place(side, place_row, i);
                        const uint taken = p.limit == UPTO ? k0 + k <= row : p.limit == FROM ? k0 + k >= row : 1;
    UNROLL
                        for (uint j = 0; j < 8; j++) acc[i][j] = taken ? f_fma(x[i], y[j], acc[i][j]) : acc[i][j];
                    }
                }
            }
            BARRIER();
        }
    }
}

#define PRODUCT(name, side, a_is_turned, b_is_turned) \
    KERNEL name(MATRIX(const float, a), MATRIX(const float, b), TENSOR(const float, bias), MATRIX(float, out), uint rows, \
                uint inner, uint columns, uint limit, uint repeats, ulong a_repeat, ulong b_repeat, uint with_bias, \
                uint tap, KEY, SUMS(out)) { \
        SHARED float4 a_tile[TILE_SPACE(side)]; \
        SHARED float4 b_tile[TILE_SPACE(side)]; \
        FOLDING; \
        AT(const float, a); \
        AT(const float, b); \
        AT(const float, bias); \
        AT(float, out); \
        FOLD(out); \
        const Product p = {rows, inner, columns, limit, repeats, a_repeat, b_repeat, a_ld, b_ld, a_is_turned, b_is_turned}; \
        const uint down = (rows + side - 1) / side; \
        const uint row0 = GROUP_X % down * side, column0 = GROUP_X / down * side; \
        if (limit != LOWER || column0 < row0 + side) { \
            float acc[8][8]; \
            for (uint i = 0; i < 8; i++) { \
                for (uint j = 0; j < 8; j++) acc[i][j] = 0.0f; \
            } \
            product_tile(side, p, a + MATRIX_AT(a), b + MATRIX_AT(b), row0, column0, (IN_SHARED float *)a_tile, \
                         (IN_SHARED float *)b_tile, acc); \
            const ulong first = MATRIX_AT(out); \
            UNROLL for (uint i = 0; i < 8; i++) { \
                const uint row = row0 + tile_place(side, ITEM / (side / 8), i); \
                UNROLL for (uint j = 0; j < 8; j++) { \
                    const uint column = column0 + tile_place(side, ITEM % (side / 8), j); \
                    if (row < rows && column < columns) { \
                        const ulong at = first + (ulong)row * out_ld + column; \
                        const float value = with_bias ? f_add(acc[i][j], bias[column]) : acc[i][j]; \
                        out[at] = value; \
                    } \
                } \
            } \
            /* The item's own outputs, once more. */ \
            ROLLED for (uint w = 0; w < (tap ? 64u : 0u); w++) { \
                const uint row = row0 + tile_place(side, ITEM / (side / 8), w / 8); \
                const uint column = column0 + tile_place(side, ITEM % (side / 8), w % 8); \
                if (row < rows && column < columns) { \
                    const ulong at = first + (ulong)row * out_ld + column; \
                    FOLD_ONE(out, at, out[at]); \
                } \
            } \
        } \
        if (tap) FOLD_END(out); \
    }

// Products of a tile of 128, 64 or 32: a as it stands or turned, b as it stands or turned.
//
// Shapes    a: [rows, inner], turned [inner, rows]; b: [inner, columns], turned [columns, inner]; bias: [columns] if
//           with_bias (read); out: [rows, columns] (written)
// Order     each output one chain over repeats, and within each over its k, ascending
// Rounding  one for each fma; one for the bias, after the whole chain
// Special   none
// Aliasing  none
// Source    docs/spec/profile.md#matmul
PRODUCT(product_128, 128, 0, 0)
PRODUCT(product_turned_right_128, 128, 0, 1)
PRODUCT(product_turned_left_128, 128, 1, 0)
PRODUCT(product_64, 64, 0, 0)
PRODUCT(product_turned_right_64, 64, 0, 1)
PRODUCT(product_turned_left_64, 64, 1, 0)
PRODUCT(product_32, 32, 0, 0)
PRODUCT(product_turned_right_32, 32, 0, 1)
PRODUCT(product_turned_left_32, 32, 1, 0)

#else

// An item computes blocks of BLOCK_ROWS x 32 outputs, k after k, in two vectors of 16 for each row, straight from memory.
// Vectors of OpenCL: this form is not compiled as CUDA C++.
#define BLOCK_ROWS 8
#define BLOCK_COLUMNS 32

// Columns `column` to `column` + own of a row of b; beyond them zeros, whose outputs nobody takes.
#define WIDE_ROW(y_low, y_high, row, own) \
    float16 y_low, y_high; \
    if (own == BLOCK_COLUMNS) { \
        y_low = vload16(0, row); \
        y_high = vload16(1, row); \
    } else { \
        float part[BLOCK_COLUMNS]; \
        for (uint j = 0; j < BLOCK_COLUMNS; j++) part[j] = j < own ? (row)[j] : 0.0f; \
        y_low = vload16(0, part); \
        y_high = vload16(1, part); \
    }

// k from `first` to `end`, of which a row takes those that `taken` says, k and row being named so.
#define BLOCK_PART(first, end, own, taken) \
    for (uint k = first; k < (end); k++) { \
        GLOBAL const float *b_row = right + k * p.b_ld; \
        WIDE_ROW(y_low, y_high, b_row, own) \
        GLOBAL const float *x = left + k * a_step; \
        _Pragma("unroll") for (uint r = 0; r < BLOCK_ROWS; r++) { \
            const uint row = row0 + r; \
            if (taken) { \
                const float16 wide = (float16)(x[a_row[r]]); \
                low[r] = fma(wide, y_low, low[r]); \
                high[r] = fma(wide, y_high, high[r]); \
            } \
        } \
    }

// A block: rows from row0 and columns from where b begins, `own` of them. What it computes is put into `block`.
FUNCTION void product_block(Product p, GLOBAL const float *a, GLOBAL const float *b, uint row0, uint own_rows, uint own,
                            float block[BLOCK_ROWS][BLOCK_COLUMNS]) {
    const uint last = row0 + own_rows - 1;
    const ulong a_step = p.a_turned ? p.a_ld : 1;
    ulong a_row[BLOCK_ROWS];
    float16 low[BLOCK_ROWS], high[BLOCK_ROWS];
#pragma unroll
    for (uint r = 0; r < BLOCK_ROWS; r++) {
        const ulong row = row0 + (r < own_rows ? r : 0);
        a_row[r] = p.a_turned ? row : row * p.a_ld;
        low[r] = high[r] = (float16)(0.0f);
    }
    for (uint repeat = 0; repeat < p.repeats; repeat++) {
        GLOBAL const float *left = a + repeat * p.a_repeat;
        GLOBAL const float *right = b + repeat * p.b_repeat;
        uint first = 0, end = p.inner;
        if (p.limit == FROM) {
            first = last < p.inner ? last : p.inner;
            BLOCK_PART(row0, first, own, k >= row)
        }
        if (p.limit == UPTO) end = row0 + 1 < p.inner ? row0 + 1 : p.inner;
        if (own == BLOCK_COLUMNS) {
            BLOCK_PART(first, end, BLOCK_COLUMNS, 1)
        } else {
            BLOCK_PART(first, end, own, 1)
        }
        if (p.limit == UPTO) {
            const uint to = last + 1 < p.inner ? last + 1 : p.inner;
            BLOCK_PART(end, to, own, k <= row)
        }
    }
#pragma unroll
    for (uint r = 0; r < BLOCK_ROWS; r++) {
        vstore16(low[r], 0, block[r]);
        vstore16(high[r], 1, block[r]);
    }
}

#define PRODUCT(name, a_is_turned) \
    KERNEL name(MATRIX(const float, a), MATRIX(const float, b), TENSOR(const float, bias), MATRIX(float, out), uint rows, \
                uint inner, uint columns, uint limit, uint repeats, ulong a_repeat, ulong b_repeat, uint with_bias, \
                uint tap, uint blocks, KEY, SUMS(out)) { \
        FOLDING; \
        AT(const float, a); \
        AT(const float, b); \
        AT(const float, bias); \
        AT(float, out); \
        FOLD(out); \
        const Product p = {rows, inner, columns, limit, repeats, a_repeat, b_repeat, a_ld, b_ld, a_is_turned, 0}; \
        const uint down = (rows + BLOCK_ROWS * blocks - 1) / (BLOCK_ROWS * blocks); \
        const uint task = GROUP_X * ITEMS + ITEM; \
        const uint column0 = task / down * BLOCK_COLUMNS; \
        /* The last block begins earlier rather than being narrow, and leaves out what its neighbour writes. */ \
        const uint base = columns < BLOCK_COLUMNS             ? 0 \
                          : columns - column0 < BLOCK_COLUMNS ? columns - BLOCK_COLUMNS \
                                                              : column0; \
        const uint own = columns < BLOCK_COLUMNS ? columns : BLOCK_COLUMNS; \
        const ulong first = MATRIX_AT(out); \
        for (uint b_ = 0; b_ < (column0 < columns ? blocks : 0); b_++) { \
            const uint row0 = (task % down * blocks + b_) * BLOCK_ROWS; \
            if (row0 < rows && (limit != LOWER || column0 < row0 + BLOCK_ROWS)) { \
                const uint own_rows = rows - row0 < BLOCK_ROWS ? rows - row0 : BLOCK_ROWS; \
                float block[BLOCK_ROWS][BLOCK_COLUMNS]; \
                product_block(p, a + MATRIX_AT(a), b + MATRIX_AT(b) + base, row0, own_rows, own, block); \
                for (uint r = 0; r < own_rows; r++) { \
                    const ulong at = first + (ulong)(row0 + r) * out_ld + base; \
                    for (uint j = column0 - base; j < own; j++) { \
                        out[at + j] = with_bias ? f_add(block[r][j], bias[base + j]) : block[r][j]; \
                    } \
                    if (tap) FOLD_RUN(out, at + (column0 - base), at + own, 1); \
                } \
            } \
        } \
        if (tap) FOLD_END(out); \
    }

// Products: a as it stands or turned, b as it stands. A group's items take `blocks` blocks of rows each.
//
// Shapes    a: [rows, inner], turned [inner, rows]; b: [inner, columns]; bias: [columns] if with_bias (read); out: [rows,
//           columns] (written)
// Order     each output one chain over repeats, and within each over its k, ascending
// Rounding  one for each fma; one for the bias, after the whole chain
// Special   none
// Aliasing  none
// Source    docs/spec/profile.md#matmul
PRODUCT(product, 0)
PRODUCT(product_turned_left, 1)

// A matrix the other way, so that a product finds its rows along the vectors.
//
// Shapes    from: [rows, columns] (read); to: [columns, rows] of each unit, one after the other (written)
// Order     none
// Rounding  none
// Special   none
// Aliasing  none
// Source    none
KERNEL turn(MATRIX(const float, from), TENSOR(float, to), uint rows, uint columns) {
    AT(const float, from);
    AT(float, to);
    GLOBAL const float *x = from + MATRIX_AT(from);
    GLOBAL float *y = to + (ulong)GROUP_Y * rows * columns;
    const uint column0 = (GROUP_X * ITEMS + ITEM) * 16;
    const uint end = column0 >= columns ? column0 : columns - column0 < 16 ? columns : column0 + 16;
    for (uint row0 = 0; row0 < rows; row0 += 16) {
        const uint row_end = rows - row0 < 16 ? rows : row0 + 16;
        for (uint column = column0; column < end; column++) {
            for (uint row = row0; row < row_end; row++) y[(ulong)column * rows + row] = x[(ulong)row * from_ld + column];
        }
    }
}

#endif

FUNCTION void column_sums(GLOBAL const float *x, uint rows, uint width, ulong column, uint own, float *sum) {
    for (uint row = 0; row < rows; row++) {
        for (uint j = 0; j < own; j++) sum[j] = f_add(sum[j], x[(ulong)row * width + column + j]);
    }
}

// Gradient by the bias of a linear layer.
//
// Shapes    d_y: [rows, width] (read); d_bias: [width] (written)
// Order     each column one sum over rows, ascending, from +0
// Rounding  f32 nearest-even after every add
// Special   none
// Aliasing  none
// Source    docs/spec/profile.md#linear
KERNEL linear_backward_bias(TENSOR(const float, d_y), TENSOR(float, d_bias), uint rows, uint width, KEY, SUMS(d_bias)) {
    FOLDING;
    AT(const float, d_y);
    AT(float, d_bias);
    FOLD(d_bias);
    COLUMNS(width);
    float sum[OWN_COLUMNS];
    for (uint j = 0; j < OWN_COLUMNS; j++) sum[j] = 0.0f;
    if (own_columns == OWN_COLUMNS) {
        column_sums(d_y, rows, width, own_column, OWN_COLUMNS, sum);
    } else {
        column_sums(d_y, rows, width, own_column, own_columns, sum);
    }
    for (uint j = 0; j < own_columns; j++) {
        d_bias[own_column + j] = sum[j];
        FOLD_ONE(d_bias, own_column + j, sum[j]);
    }
    FOLD_END(d_bias);
}
