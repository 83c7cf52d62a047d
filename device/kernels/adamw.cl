// AdamW of one parameter tensor. A group takes `span` elements from the first that is its own.
//
// Shapes    p, m, v: [n] (read and written), gradient: [n] (read), norm: [2] (read), norm and clipping factor
// Order     g = gradient * factor; m = fma(beta1, m, one_minus_beta1 * g);
//           v = fma(beta2, v, one_minus_beta2 * (g * g)); mh = m * first_correction; vh = v * second_correction;
//           den = sqrt(vh) + epsilon; upd = mh / den; p = fma(-learning_rate, upd, p * decay)
// Rounding  f32 nearest-even after every operation, one for each fma
// Special   none
// Aliasing  p, m and v in place
// Source    docs/spec/profile.md#adamw
KERNEL adamw(TENSOR(float, p), TENSOR(float, m), TENSOR(float, v), TENSOR(const float, gradient),
             TENSOR(const float, norm), ulong n, ulong span, float beta1, float one_minus_beta1, float beta2,
             float one_minus_beta2, float epsilon, float first_correction, float second_correction,
             float learning_rate, float decay) {
    AT(float, p);
    AT(float, m);
    AT(float, v);
    AT(const float, gradient);
    AT(const float, norm);
    const float factor = norm[1];
    const ulong first = GROUP_X * span;
    const ulong end = first + span < n ? first + span : n;
    for (ulong i = first + ITEM; i < end; i += ITEMS) {
        const float g = f_mul(gradient[i], factor);
        const float m_new = f_fma(beta1, m[i], f_mul(one_minus_beta1, g));
        const float v_new = f_fma(beta2, v[i], f_mul(one_minus_beta2, f_mul(g, g)));
        const float mh = f_mul(m_new, first_correction);
        const float vh = f_mul(v_new, second_correction);
        const float den = f_add(f_sqrt(vh), epsilon);
        const float upd = f_div(mh, den);
        p[i] = f_fma(-learning_rate, upd, f_mul(p[i], decay));
        m[i] = m_new;
        v[i] = v_new;
    }
}
