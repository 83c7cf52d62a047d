// Sum of two tensors.
//
// Shapes    left, right: [n] (read); out: [n] (written)
// Order     none: elements are independent
// Rounding  f32 nearest-even after the add
// Special   none
// Aliasing  none
// Source    docs/spec/profile.md#residual
KERNEL add(TENSOR(const float, left), TENSOR(const float, right), TENSOR(float, out), ulong n, uint blocks, KEY,
           SUMS(out)) {
    FOLDING;
    AT(const float, left);
    AT(const float, right);
    AT(float, out);
    FOLD(out);
    ELEMENTS(n, blocks);
    for (ulong i = own_first; i < own_end; i += STEP) out[i] = f_add(left[i], right[i]);
    FOLD_RUN(out, own_first, own_end, STEP);
    FOLD_END(out);
}
