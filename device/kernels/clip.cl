// The global norm of the reduced gradient, and the factor that clips it (docs/spec/profile.md#global-norm).

// Most rows that a group of square_sums takes.
#define CLIP_ROWS 32

// Square sums of the rows of one parameter tensor.
//
// Shapes    x: [rows, columns] (read), sums: [rows] (written); a group takes rows_each rows, at most 32
// Order     warp32_dot(row, row): lane l is the chain over i = l, l + 32, ... of fma(x[i], x[i], lane) from +0; then
//           for s in 16, 8, 4, 2, 1: lane[i] = lane[i] + lane[i + s] for i < s
// Rounding  one for each fma and each add
// Special   none
// Aliasing  none
// Source    docs/spec/profile.md#warp32
KERNEL square_sums(TENSOR(const float, x), TENSOR(float, sums), ulong rows, ulong columns, uint rows_each) {
    AT(const float, x);
    AT(float, sums);
    const ulong first = (ulong)GROUP_X * rows_each;
    const uint here = rows - first < rows_each ? (uint)(rows - first) : rows_each;
#ifdef STAGED
    // Neighbouring items are neighbouring lanes of a row.
    SHARED float lanes[CLIP_ROWS * 32];
    for (uint task = ITEM; task < 32 * here; task += ITEMS) {
        GLOBAL const float *row = x + (first + task / 32) * columns;
        float lane = 0.0f;
        for (ulong i = task % 32; i < columns; i += 32) lane = f_fma(row[i], row[i], lane);
        lanes[task] = lane;
    }
    BARRIER();
    for (uint r = ITEM; r < here; r += ITEMS) {
        for (uint s = 16; s > 0; s /= 2) {
            for (uint i = 0; i < s; i++) lanes[32 * r + i] = f_add(lanes[32 * r + i], lanes[32 * r + i + s]);
        }
        sums[first + r] = lanes[32 * r];
    }
#else
    for (uint r = ITEM; r < here; r += ITEMS) {
        GLOBAL const float *row = x + (first + r) * columns;
        float lanes[32];
        for (uint l = 0; l < 32; l++) lanes[l] = 0.0f;
        const ulong whole = columns / 32 * 32;
        for (ulong i = 0; i < whole; i += 32) {
            for (uint l = 0; l < 32; l++) lanes[l] = f_fma(row[i + l], row[i + l], lanes[l]);
        }
        for (uint l = 0; l < columns - whole; l++) lanes[l] = f_fma(row[whole + l], row[whole + l], lanes[l]);
        for (uint s = 16; s > 0; s /= 2) {
            for (uint i = 0; i < s; i++) lanes[i] = f_add(lanes[i], lanes[i + s]);
        }
        sums[first + r] = lanes[0];
    }
#endif
}

// Sums of chunks of rows.
//
// Shapes    sums: square sums of all rows (read), chunks: [count, 2] (read), first row and rows of each; out: [count]
//           (written)
// Order     acc = +0; rows ascending acc = acc + sums[row]
// Rounding  f32 nearest-even after every add
// Special   none
// Aliasing  none
// Source    docs/spec/profile.md#global-norm
KERNEL chunk_sums(TENSOR(const float, sums), TENSOR(const ulong, chunks), TENSOR(float, out), ulong count) {
    AT(const float, sums);
    AT(const ulong, chunks);
    AT(float, out);
    const ulong chunk = (ulong)GROUP_X * ITEMS + ITEM;
    if (chunk >= count) return;
    const ulong first = chunks[2 * chunk];
    const ulong rows = chunks[2 * chunk + 1];
    float acc = 0.0f;
    for (ulong r = 0; r < rows; r++) acc = f_add(acc, sums[first + r]);
    out[chunk] = acc;
}

// The norm, and the factor that clips. One item does it.
//
// Shapes    sums: of all chunks (read), tensors: [count] (read), chunks of each; norm: [2] (written), norm and factor
// Order     a tensor's sum is +0, then its chunks' sums ascending; the whole is +0, then the tensors' sums ascending;
//           norm = sqrt(whole); factor = clip / (norm + clip_epsilon) if norm > clip, otherwise 1
// Rounding  f32 nearest-even after every operation
// Special   a NaN as norm gives the factor 1
// Aliasing  none
// Source    docs/spec/profile.md#global-norm
KERNEL global_norm(TENSOR(const float, sums), TENSOR(const ulong, tensors), TENSOR(float, norm), ulong count,
                   float clip, float clip_epsilon) {
    AT(const float, sums);
    AT(const ulong, tensors);
    AT(float, norm);
    if (GROUP_X != 0 || ITEM != 0) return;
    float whole = 0.0f;
    ulong chunk = 0;
    for (ulong t = 0; t < count; t++) {
        float tensor = 0.0f;
        for (ulong c = 0; c < tensors[t]; c++) tensor = f_add(tensor, sums[chunk++]);
        whole = f_add(whole, tensor);
    }
    const float root = f_sqrt(whole);
    norm[0] = root;
    norm[1] = root > clip ? f_div(clip, f_add(root, clip_epsilon)) : 1.0f;
}
