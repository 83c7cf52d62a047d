// Normalisation of each row by the root of its mean square.
//
// Shapes    x: [rows, width], gain: [width] (read); y: as x, rstd: [rows] (written); `each` rows to a group
// Order     warp32
// Rounding  f32 nearest-even after every operation written
// Special   none
// Aliasing  none
// Source    docs/spec/profile.md#rmsnorm
KERNEL rmsnorm(TENSOR(const float, x), TENSOR(const float, gain), TENSOR(float, y), TENSOR(float, rstd), uint rows,
               uint width, uint each, float inv_c, float eps, KEY, SUMS(y), SUMS(rstd)) {
    FOLDING;
    MEETING;
    AT(const float, x);
    AT(const float, gain);
    AT(float, y);
    AT(float, rstd);
    FOLD(y);
    FOLD(rstd);
    EACH_ROW(row, here, rows, width, each)
        GLOBAL const float *in = x + row * width;
        GLOBAL float *out = y + row * width;
        float lane[OWN_LANES];
        lanes_start(lane, 0.0f);
        IN_LANES(l, i, here, lane[l] = f_fma(in[i], in[i], lane[l]);)
        const float ms = f_mul(lanes_sum(lane, MEET), inv_c);
        const float r = f_div(1.0f, f_sqrt(f_add(ms, eps)));
        IN_ROW(i, here) out[i] = f_mul(f_mul(in[i], r), gain[i]);
        FOLD_RUN(y, row * width + ROW_FIRST, row * width + here, ROW_STEP);
        if (here > 0 && ROW_FIRST == 0) {
            rstd[row] = r;
            FOLD_ONE(rstd, row, r);
        }
    END_ROW
    FOLD_END(y);
    FOLD_END(rstd);
}

// Its gradient by the input.
//
// Shapes    d_y, x: [rows, width], rstd: [rows], gain: [width] (read); d_x: as x (written); `each` rows to a group
// Order     warp32
// Rounding  f32 nearest-even after every operation written
// Special   none
// Aliasing  none
// Source    docs/spec/profile.md#rmsnorm
KERNEL rmsnorm_backward(TENSOR(const float, d_y), TENSOR(const float, x), TENSOR(const float, rstd),
                        TENSOR(const float, gain), TENSOR(float, d_x), uint rows, uint width, uint each, float inv_c,
                        KEY, SUMS(d_x)) {
    FOLDING;
    MEETING;
    AT(const float, d_y);
    AT(const float, x);
    AT(const float, rstd);
    AT(const float, gain);
    AT(float, d_x);
    FOLD(d_x);
    EACH_ROW(row, here, rows, width, each)
        GLOBAL const float *in = x + row * width;
        GLOBAL const float *d = d_y + row * width;
        GLOBAL float *out = d_x + row * width;
        const float r = here > 0 ? rstd[row] : 0.0f;
        float lane[OWN_LANES];
        lanes_start(lane, 0.0f);
        IN_LANES(l, i, here, lane[l] = f_fma(f_mul(d[i], gain[i]), f_mul(in[i], r), lane[l]);)
        const float m = f_mul(lanes_sum(lane, MEET), inv_c);
        IN_ROW(i, here) {
            out[i] = f_mul(r, f_sub(f_mul(d[i], gain[i]), f_mul(f_mul(in[i], r), m)));
        }
        FOLD_RUN(d_x, row * width + ROW_FIRST, row * width + here, ROW_STEP);
    END_ROW
    FOLD_END(d_x);
}

FUNCTION void rmsnorm_columns(GLOBAL const float *d_y, GLOBAL const float *x, GLOBAL const float *rstd, uint rows,
                              uint width, ulong column, uint own, float *gain) {
    for (uint row = 0; row < rows; row++) {
        const float r = rstd[row];
        for (uint j = 0; j < own; j++) {
            const ulong i = (ulong)row * width + column + j;
            gain[j] = f_fma(d_y[i], f_mul(x[i], r), gain[j]);
        }
    }
}

// Its gradient by the gain.
//
// Shapes    d_y, x: [rows, width], rstd: [rows] (read); d_gain: [width] (written)
// Order     each column one chain over rows, ascending, from +0
// Rounding  f32 nearest-even after every operation written
// Special   none
// Aliasing  none
// Source    docs/spec/profile.md#rmsnorm
KERNEL rmsnorm_backward_gain(TENSOR(const float, d_y), TENSOR(const float, x), TENSOR(const float, rstd),
                             TENSOR(float, d_gain), uint rows, uint width, KEY, SUMS(d_gain)) {
    FOLDING;
    AT(const float, d_y);
    AT(const float, x);
    AT(const float, rstd);
    AT(float, d_gain);
    FOLD(d_gain);
    COLUMNS(width);
    float gain[OWN_COLUMNS];
    for (uint j = 0; j < OWN_COLUMNS; j++) gain[j] = 0.0f;
    if (own_columns == OWN_COLUMNS) {
        rmsnorm_columns(d_y, x, rstd, rows, width, own_column, OWN_COLUMNS, gain);
    } else {
        rmsnorm_columns(d_y, x, rstd, rows, width, own_column, own_columns, gain);
    }
    for (uint j = 0; j < own_columns; j++) {
        d_gain[own_column + j] = gain[j];
        FOLD_ONE(d_gain, own_column + j, gain[j]);
    }
    FOLD_END(d_gain);
}
