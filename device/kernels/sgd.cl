// SGD of one parameter tensor. A group takes `span` elements from the first that is its own.
//
// Shapes    p, m: [n] (read and written), gradient: [n] (read), norm: [2] (read), norm and clipping factor
// Order     g = gradient * factor; g = fma(decay, p, g); m = fma(momentum, m, g); upd = fma(momentum, m, g) if
//           nesterov, otherwise m; p = fma(-learning_rate, upd, p)
// Rounding  f32 nearest-even after every operation, one for each fma
// Special   none
// Aliasing  p and m in place
// Source    docs/spec/profile.md#sgd
KERNEL sgd(TENSOR(float, p), TENSOR(float, m), TENSOR(const float, gradient), TENSOR(const float, norm), ulong n,
           ulong span, float momentum, uint nesterov, float learning_rate, float decay) {
    AT(float, p);
    AT(float, m);
    AT(const float, gradient);
    AT(const float, norm);
    const float factor = norm[1];
    const ulong first = GROUP_X * span;
    const ulong end = first + span < n ? first + span : n;
    for (ulong i = first + ITEM; i < end; i += ITEMS) {
        const float g = f_fma(decay, p[i], f_mul(gradient[i], factor));
        const float m_new = f_fma(momentum, m[i], g);
        const float upd = nesterov ? f_fma(momentum, m_new, g) : m_new;
        p[i] = f_fma(-learning_rate, upd, p[i]);
        m[i] = m_new;
    }
}
