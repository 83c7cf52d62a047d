// Layer normalisation of each row.
//
// Shapes    x: [rows, width], gain, bias: [width] (read); y: as x, mean, rstd: [rows] (written); `each` rows to a group
// Order     warp32 for both sums
// Rounding  f32 nearest-even after every operation written
// Special   none
// Aliasing  none
// Source    docs/spec/profile.md#layernorm
KERNEL layernorm(TENSOR(const float, x), TENSOR(const float, gain), TENSOR(const float, bias), TENSOR(float, y),
                 TENSOR(float, mean), TENSOR(float, rstd), uint rows, uint width, uint each, float inv_c, float eps,
                 KEY, SUMS(y), SUMS(mean), SUMS(rstd)) {
    FOLDING;
    MEETING;
    AT(const float, x);
    AT(const float, gain);
    AT(const float, bias);
    AT(float, y);
    AT(float, mean);
    AT(float, rstd);
    FOLD(y);
    FOLD(mean);
    FOLD(rstd);
    EACH_ROW(row, here, rows, width, each)
        GLOBAL const float *in = x + row * width;
        GLOBAL float *out = y + row * width;
        float lane[OWN_LANES];
        lanes_start(lane, 0.0f);
        IN_LANES(l, i, here, lane[l] = f_add(lane[l], in[i]);)
        const float m = f_mul(lanes_sum(lane, MEET), inv_c);
        lanes_start(lane, 0.0f);
        IN_LANES(l, i, here, const float d = f_sub(in[i], m); lane[l] = f_fma(d, d, lane[l]);)
        const float variance = f_mul(lanes_sum(lane, MEET), inv_c);
        const float r = f_div(1.0f, f_sqrt(f_add(variance, eps)));
        IN_ROW(i, here) out[i] = f_fma(f_mul(f_sub(in[i], m), r), gain[i], bias[i]);
        FOLD_RUN(y, row * width + ROW_FIRST, row * width + here, ROW_STEP);
        if (here > 0 && ROW_FIRST == 0) {
            mean[row] = m;
            rstd[row] = r;
            FOLD_ONE(mean, row, m);
            FOLD_ONE(rstd, row, r);
        }
    END_ROW
    FOLD_END(y);
    FOLD_END(mean);
    FOLD_END(rstd);
}

// Its gradient by the input.
//
// Shapes    d_y, x: [rows, width], mean, rstd: [rows], gain: [width] (read); d_x: as x (written); `each` rows to a
//           group
// Order     warp32 for both sums
// Rounding  f32 nearest-even after every operation written
// Special   none
// Aliasing  none
// Source    docs/spec/profile.md#layernorm
KERNEL layernorm_backward(TENSOR(const float, d_y), TENSOR(const float, x), TENSOR(const float, mean),
                          TENSOR(const float, rstd), TENSOR(const float, gain), TENSOR(float, d_x), uint rows,
                          uint width, uint each, float inv_c, KEY, SUMS(d_x)) {
    FOLDING;
    MEETING;
    AT(const float, d_y);
    AT(const float, x);
    AT(const float, mean);
    AT(const float, rstd);
    AT(const float, gain);
    AT(float, d_x);
    FOLD(d_x);
    EACH_ROW(row, here, rows, width, each)
        GLOBAL const float *in = x + row * width;
        GLOBAL const float *d = d_y + row * width;
        GLOBAL float *out = d_x + row * width;
        const float m = here > 0 ? mean[row] : 0.0f, r = here > 0 ? rstd[row] : 0.0f;
        float lane[OWN_LANES];
        lanes_start(lane, 0.0f);
        IN_LANES(l, i, here, lane[l] = f_add(lane[l], f_mul(d[i], gain[i]));)
        const float m1 = f_mul(lanes_sum(lane, MEET), inv_c);
        lanes_start(lane, 0.0f);
        IN_LANES(l, i, here, lane[l] = f_fma(f_mul(d[i], gain[i]), f_mul(f_sub(in[i], m), r), lane[l]);)
        const float m2 = f_mul(lanes_sum(lane, MEET), inv_c);
        IN_ROW(i, here) {
            const float xhat = f_mul(f_sub(in[i], m), r);
            out[i] = f_mul(r, f_sub(f_sub(f_mul(d[i], gain[i]), m1), f_mul(xhat, m2)));
        }
        FOLD_RUN(d_x, row * width + ROW_FIRST, row * width + here, ROW_STEP);
    END_ROW
    FOLD_END(d_x);
}

// A column's part in the gradients by the parameters, for `own` columns from `column` on.
FUNCTION void norm_columns(GLOBAL const float *d_y, GLOBAL const float *x, GLOBAL const float *mean,
                           GLOBAL const float *rstd, uint rows, uint width, ulong column, uint own, float *gain,
                           float *bias) {
    for (uint row = 0; row < rows; row++) {
        const float m = mean[row], r = rstd[row];
        for (uint j = 0; j < own; j++) {
            const float d = d_y[(ulong)row * width + column + j];
            const float xhat = f_mul(f_sub(x[(ulong)row * width + column + j], m), r);
            gain[j] = f_fma(d, xhat, gain[j]);
            bias[j] = f_add(bias[j], d);
        }
    }
}

// Its gradients by gain and bias.
//
// Shapes    d_y, x: [rows, width], mean, rstd: [rows] (read); d_gain, d_bias: [width] (written)
// Order     each column one chain over rows, ascending, from +0
// Rounding  f32 nearest-even after every operation written
// Special   none
// Aliasing  none
// Source    docs/spec/profile.md#layernorm
KERNEL layernorm_backward_parameters(TENSOR(const float, d_y), TENSOR(const float, x), TENSOR(const float, mean),
                                     TENSOR(const float, rstd), TENSOR(float, d_gain), TENSOR(float, d_bias), uint rows,
                                     uint width, KEY, SUMS(d_gain), SUMS(d_bias)) {
    FOLDING;
    AT(const float, d_y);
    AT(const float, x);
    AT(const float, mean);
    AT(const float, rstd);
    AT(float, d_gain);
    AT(float, d_bias);
    FOLD(d_gain);
    FOLD(d_bias);
    COLUMNS(width);
    float gain[OWN_COLUMNS], bias[OWN_COLUMNS];
    for (uint j = 0; j < OWN_COLUMNS; j++) gain[j] = bias[j] = 0.0f;
    if (own_columns == OWN_COLUMNS) {
        norm_columns(d_y, x, mean, rstd, rows, width, own_column, OWN_COLUMNS, gain, bias);
    } else {
        norm_columns(d_y, x, mean, rstd, rows, width, own_column, own_columns, gain, bias);
    }
    for (uint j = 0; j < own_columns; j++) {
        d_gain[own_column + j] = gain[j];
        d_bias[own_column + j] = bias[j];
        FOLD_ONE(d_gain, own_column + j, gain[j]);
        FOLD_ONE(d_bias, own_column + j, bias[j]);
    }
    FOLD_END(d_gain);
    FOLD_END(d_bias);
}
