// silu(gate) * up.
//
// Shapes    gate, up: [n] (read); y: [n] (written)
// Order     none: elements are independent
// Rounding  f32 nearest-even after every operation written
// Special   as its operations
// Aliasing  none
// Source    docs/spec/profile.md#silu
KERNEL swiglu(TENSOR(const float, gate), TENSOR(const float, up), TENSOR(float, y), ulong n, uint blocks, KEY,
              SUMS(y)) {
    FOLDING;
    AT(const float, gate);
    AT(const float, up);
    AT(float, y);
    FOLD(y);
    ELEMENTS(n, blocks);
    for (ulong i = own_first; i < own_end; i += STEP) y[i] = f_mul(f_mul(gate[i], sigmoid_v1(gate[i])), up[i]);
    FOLD_RUN(y, own_first, own_end, STEP);
    FOLD_END(y);
}

// Its gradients.
//
// Shapes    d_y, gate, up: [n] (read); d_gate, d_up: [n] (written)
// Order     none: elements are independent
// Rounding  f32 nearest-even after every operation written
// Special   as its operations
// Aliasing  none
// Source    docs/spec/profile.md#silu
KERNEL swiglu_backward(TENSOR(const float, d_y), TENSOR(const float, gate), TENSOR(const float, up),
                       TENSOR(float, d_gate), TENSOR(float, d_up), ulong n, uint blocks, KEY, SUMS(d_gate),
                       SUMS(d_up)) {
    FOLDING;
    AT(const float, d_y);
    AT(const float, gate);
    AT(const float, up);
    AT(float, d_gate);
    AT(float, d_up);
    FOLD(d_gate);
    FOLD(d_up);
    ELEMENTS(n, blocks);
    for (ulong i = own_first; i < own_end; i += STEP) {
        const float s = sigmoid_v1(gate[i]);
        d_up[i] = f_mul(d_y[i], f_mul(gate[i], s));
        const float t = f_fma(gate[i], f_sub(1.0f, s), 1.0f);
        d_gate[i] = f_mul(f_mul(d_y[i], up[i]), f_mul(s, t));
    }
    FOLD_RUN(d_gate, own_first, own_end, STEP);
    FOLD_RUN(d_up, own_first, own_end, STEP);
    FOLD_END(d_gate);
    FOLD_END(d_up);
}
