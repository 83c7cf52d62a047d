// GELU.
//
// Shapes    x: [n] (read); y: [n] (written)
// Order     none: elements are independent
// Rounding  f32 nearest-even after every operation written
// Special   as its operations
// Aliasing  none
// Source    docs/spec/profile.md#gelu
FUNCTION float gelu_tanh(float x) {
    const float t = f_fma(float_of(0x3d372713u), f_mul(x, x), 1.0f);
    return tanh_v1(f_mul(f_mul(float_of(0x3f4c422au), x), t));
}

KERNEL gelu(TENSOR(const float, x), TENSOR(float, y), ulong n, uint blocks, KEY, SUMS(y)) {
    FOLDING;
    AT(const float, x);
    AT(float, y);
    FOLD(y);
    ELEMENTS(n, blocks);
    for (ulong i = own_first; i < own_end; i += STEP) {
        const float v = x[i];
        y[i] = f_mul(f_mul(0.5f, v), f_add(1.0f, gelu_tanh(v)));
    }
    FOLD_RUN(y, own_first, own_end, STEP);
    FOLD_END(y);
}

// Its gradient.
//
// Shapes    d_y, x: [n] (read); d_x: [n] (written)
// Order     none: elements are independent
// Rounding  f32 nearest-even after every operation written
// Special   as its operations
// Aliasing  none
// Source    docs/spec/profile.md#gelu
KERNEL gelu_backward(TENSOR(const float, d_y), TENSOR(const float, x), TENSOR(float, d_x), ulong n, uint blocks, KEY,
                     SUMS(d_x)) {
    FOLDING;
    AT(const float, d_y);
    AT(const float, x);
    AT(float, d_x);
    FOLD(d_x);
    ELEMENTS(n, blocks);
    for (ulong i = own_first; i < own_end; i += STEP) {
        const float v = x[i];
        const float th = gelu_tanh(v);
        const float h = f_mul(0.5f, v);
        const float inner = f_mul(float_of(0x3f4c422au), f_fma(float_of(0x3e095d4fu), f_mul(v, v), 1.0f));
        const float s = f_mul(f_fma(negative(th), th, 1.0f), inner);
        d_x[i] = f_mul(d_y[i], f_fma(h, s, f_mul(0.5f, f_add(1.0f, th))));
    }
    FOLD_RUN(d_x, own_first, own_end, STEP);
    FOLD_END(d_x);
}
