// Elementary functions (docs/spec/profile.md#exp-v1 and after). Written without branches: a loop over them becomes
// vectors on a processor.

FUNCTION uint is_nan(float x) { return (bits_of(x) & 0x7fffffffu) > 0x7f800000u; }

FUNCTION float negative(float x) { return float_of(bits_of(x) ^ 0x80000000u); }

// Source    docs/spec/profile.md#exp-v1
FUNCTION float exp_v1(float x) {
    const float y = x > 88.0f ? 88.0f : x;
    float t = f_mul(y, float_of(0x3fb8aa3bu));
    t = f_add(t, float_of(0x4b400000u));
    const float n = f_sub(t, float_of(0x4b400000u));
    float r = f_fma(n, float_of(0xbf317200u), y);
    r = f_fma(n, float_of(0xb5bfbe8eu), r);
    float p = f_fma(float_of(0x3ab511e9u), r, float_of(0x3c091d10u));
    p = f_fma(p, r, float_of(0x3d2aac79u));
    p = f_fma(p, r, float_of(0x3e2aaa49u));
    p = f_fma(p, r, float_of(0x3efffffeu));
    p = f_fma(p, r, 1.0f);
    p = f_fma(p, r, 1.0f);
    // The low bits of t are n, of the magic number none.
    const uint power = (bits_of(t) - 0x4b400000u + 127u) << 23;
    const uint result = bits_of(f_mul(p, float_of(power)));
    const uint below = x < -87.0f ? 0u : result;
    return float_of(is_nan(x) ? 0x7fc00000u : below);
}

// Source    docs/spec/profile.md#log-v1
FUNCTION float log_v1(float x) {
    const uint subnormal = (bits_of(x) & 0x7fffffffu) < 0x00800000u;
    const float y = subnormal ? f_mul(x, float_of(0x4b000000u)) : x;
    const uint o = bits_of(y) - 0x3f3504f3u;
    // Shifted right with its sign.
    const int whole = (int)(o >> 23) - ((o & 0x80000000u) != 0 ? 512 : 0) - (subnormal ? 23 : 0);
    const float n = (float)whole;
    const float m = float_of((o & 0x007fffffu) + 0x3f3504f3u);
    const float f = f_sub(m, 1.0f);
    const float s = f_div(f, f_add(m, 1.0f));
    const float z = f_mul(s, s);
    float p = f_fma(float_of(0x3e98f33cu), z, float_of(0x3eccaf4eu));
    p = f_fma(p, z, float_of(0x3f2aaabdu));
    const float q = f_mul(z, p);
    const float d = f_sub(f, q);
    float l = f_fma(negative(s), d, f);
    l = f_fma(n, float_of(0x35bfbe8eu), l);
    const uint result = bits_of(f_fma(n, float_of(0x3f317200u), l));
    const uint large = bits_of(x) == 0x7f800000u ? 0x7f800000u : result;
    const uint zero = (bits_of(x) & 0x7fffffffu) == 0 ? 0xff800000u : large;
    return float_of(is_nan(x) || x < 0.0f ? 0x7fc00000u : zero);
}

// Source    docs/spec/profile.md#tanh-v1
FUNCTION float tanh_v1(float u) {
    const float a = float_of(bits_of(u) & 0x7fffffffu);
    const float e = exp_v1(f_add(a, a));
    const float th = f_sub(1.0f, f_div(2.0f, f_add(e, 1.0f)));
    return float_of((bits_of(th) & 0x7fffffffu) | (bits_of(u) & 0x80000000u));
}

// 1 / (1 + exp(-x)).
// Source    docs/spec/profile.md#silu
FUNCTION float sigmoid_v1(float x) { return f_div(1.0f, f_add(1.0f, exp_v1(negative(x)))); }

// The larger, the accumulated one if neither is.
// Source    docs/spec/profile.md#warp32
FUNCTION float larger(float a, float b) { return b > a ? b : a; }
