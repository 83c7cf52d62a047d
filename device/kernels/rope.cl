// Turns channel i of each head against channel i + half by the angle of the row's time.
//
// Shapes    x: [rows, heads x 2 half], cosine, sine: [times, half] (read); y: as x (written); `each` rows to a group
// Order     none: elements are independent
// Rounding  f32 nearest-even after every operation written
// Special   none
// Aliasing  none
// Source    docs/spec/profile.md#rope
KERNEL rope(TENSOR(const float, x), TENSOR(const float, cosine), TENSOR(const float, sine), TENSOR(float, y), uint rows,
            uint heads, uint half_size, uint times, uint each, KEY, SUMS(y)) {
    FOLDING;
    AT(const float, x);
    AT(const float, cosine);
    AT(const float, sine);
    AT(float, y);
    FOLD(y);
    EACH_ROW(row, here, rows, heads, each)
        GLOBAL const float *c = cosine + row % times * half_size;
        GLOBAL const float *s = sine + row % times * half_size;
        for (uint head = 0; head < here; head++) {
            const ulong first = (row * heads + head) * 2 * half_size;
            IN_ROW(i, half_size) {
                const float a = x[first + i], b = x[first + half_size + i];
                y[first + i] = f_fma(a, c[i], negative(f_mul(b, s[i])));
                y[first + half_size + i] = f_fma(b, c[i], f_mul(a, s[i]));
            }
            FOLD_RUN(y, first + ROW_FIRST, first + half_size, ROW_STEP);
            FOLD_RUN(y, first + half_size + ROW_FIRST, first + 2 * half_size, ROW_STEP);
        }
    END_ROW
    FOLD_END(y);
}

// The turn the other way.
//
// Shapes    d_y: [rows, heads x 2 half], cosine, sine: [times, half] (read); d_x: as d_y (written); `each` rows to a
//           group
// Order     none: elements are independent
// Rounding  f32 nearest-even after every operation written
// Special   none
// Aliasing  none
// Source    docs/spec/profile.md#rope
KERNEL rope_backward(TENSOR(const float, d_y), TENSOR(const float, cosine), TENSOR(const float, sine),
                     TENSOR(float, d_x), uint rows, uint heads, uint half_size, uint times, uint each, KEY, SUMS(d_x)) {
    FOLDING;
    AT(const float, d_y);
    AT(const float, cosine);
    AT(const float, sine);
    AT(float, d_x);
    FOLD(d_x);
    EACH_ROW(row, here, rows, heads, each)
        GLOBAL const float *c = cosine + row % times * half_size;
        GLOBAL const float *s = sine + row % times * half_size;
        for (uint head = 0; head < here; head++) {
            const ulong first = (row * heads + head) * 2 * half_size;
            IN_ROW(i, half_size) {
                const float a = d_y[first + i], b = d_y[first + half_size + i];
                d_x[first + i] = f_fma(a, c[i], f_mul(b, s[i]));
                d_x[first + half_size + i] = f_fma(b, c[i], negative(f_mul(a, s[i])));
            }
            FOLD_RUN(d_x, first + ROW_FIRST, first + half_size, ROW_STEP);
            FOLD_RUN(d_x, first + half_size + ROW_FIRST, first + 2 * half_size, ROW_STEP);
        }
    END_ROW
    FOLD_END(d_x);
}
