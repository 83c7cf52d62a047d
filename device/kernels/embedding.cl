// A leaf's tokens and, for each, the token after it.
//
// Shapes    stream: the token stream, starts: [rows / times] (read); tokens, targets: [rows] (written)
// Order     none
// Rounding  none
// Special   none
// Aliasing  none
// Source    docs/spec/plan.md#order
KERNEL window(TENSOR(const uint, stream), TENSOR(const ulong, starts), TENSOR(uint, tokens), TENSOR(uint, targets),
              ulong n, uint blocks, uint times, KEY, SUMS(tokens), SUMS(targets)) {
    FOLDING;
    AT(const uint, stream);
    AT(const ulong, starts);
    AT(uint, tokens);
    AT(uint, targets);
    FOLD(tokens);
    FOLD(targets);
    ELEMENTS(n, blocks);
    for (ulong i = own_first; i < own_end; i += STEP) {
        GLOBAL const uint *at = stream + starts[i / times] + i % times;
        tokens[i] = at[0];
        targets[i] = at[1];
        FOLD_U32(tokens, i, at[0]);
        FOLD_U32(targets, i, at[1]);
    }
    FOLD_END(tokens);
    FOLD_END(targets);
}

// Each row its token's and, if `positions` is not 0, its position's.
//
// Shapes    tokens: [rows], wte: [vocabulary, width], wpe: [.., width] (read); out: [rows, width] (written); `each`
//           rows to a group
// Order     none: elements are independent
// Rounding  f32 nearest-even after the add; without positions a copy
// Special   none
// Aliasing  wpe may be wte where there are no positions
// Source    docs/spec/profile.md#embedding
KERNEL embedding(TENSOR(const uint, tokens), TENSOR(const float, wte), TENSOR(const float, wpe), TENSOR(float, out),
                 uint rows, uint width, uint times, uint positions, uint each, KEY, SUMS(out)) {
    FOLDING;
    AT(const uint, tokens);
    AT(const float, wte);
    AT(const float, wpe);
    AT(float, out);
    FOLD(out);
    EACH_ROW(row, here, rows, width, each)
        GLOBAL const float *token = wte + (ulong)(here > 0 ? tokens[row] : 0) * width;
        GLOBAL const float *position = wpe + row % times * width;
        GLOBAL float *y = out + row * width;
        if (positions != 0) {
            IN_ROW(i, here) y[i] = f_add(token[i], position[i]);
        } else {
            IN_ROW(i, here) y[i] = token[i];
        }
        FOLD_RUN(out, row * width + ROW_FIRST, row * width + here, ROW_STEP);
    END_ROW
    FOLD_END(out);
}

// Gradient by the token table, from positions sorted by token.
//
// Shapes    sorted: [vocabulary + 1] where each token's positions begin, then the positions; d_x: [.., width] (read);
//           d_wte: [vocabulary, width] (written); `each` rows of d_wte to a group
// Order     each element one sum over the token's positions, ascending, from +0
// Rounding  f32 nearest-even after every add
// Special   rows that are not hit are +0
// Aliasing  none
// Source    docs/spec/profile.md#embedding
KERNEL embedding_backward_tokens(TENSOR(const uint, sorted), TENSOR(const float, d_x), TENSOR(float, d_wte),
                                 uint vocabulary, uint width, uint each, KEY, SUMS(d_wte)) {
    FOLDING;
    AT(const uint, sorted);
    AT(const float, d_x);
    AT(float, d_wte);
    FOLD(d_wte);
    EACH_ROW(row, here, vocabulary, width, each)
        const uint first = here > 0 ? sorted[row] : 0, end = here > 0 ? sorted[row + 1] : 0;
        GLOBAL const uint *position = sorted + vocabulary + 1;
        GLOBAL float *out = d_wte + row * width;
        IN_ROW(i, here) out[i] = 0.0f;
        for (uint p = first; p < end; p++) {
            GLOBAL const float *x = d_x + (ulong)position[p] * width;
            // Each item adds to what itself wrote.
            IN_ROW(i, here) out[i] = f_add(out[i], x[i]);
        }
        FOLD_RUN(d_wte, row * width + ROW_FIRST, row * width + here, ROW_STEP);
    END_ROW
    FOLD_END(d_wte);
}

// Gradient by the position table.
//
// Shapes    d_x: [batches x times, width] (read); d_wpe: [positions, width] (written); `each` rows of d_wpe to a group
// Order     each element one sum over sequences, ascending, from +0
// Rounding  f32 nearest-even after every add
// Special   positions beyond the sequences are +0
// Aliasing  none
// Source    docs/spec/profile.md#embedding
KERNEL embedding_backward_positions(TENSOR(const float, d_x), TENSOR(float, d_wpe), uint positions, uint width,
                                    uint times, uint batches, uint each, KEY, SUMS(d_wpe)) {
    FOLDING;
    AT(const float, d_x);
    AT(float, d_wpe);
    FOLD(d_wpe);
    EACH_ROW(row, here, positions, width, each)
        GLOBAL float *out = d_wpe + row * width;
        IN_ROW(i, here) {
            float sum = 0.0f;
            for (uint b = 0; b < (row < times ? batches : 0); b++) {
                sum = f_add(sum, d_x[((ulong)b * times + row) * width + i]);
            }
            out[i] = sum;
        }
        FOLD_RUN(d_wpe, row * width + ROW_FIRST, row * width + here, ROW_STEP);
    END_ROW
    FOLD_END(d_wpe);
}
