// Known answers (device/src/selftest.rs): what a device must compute to the bit before it may run anything.
//
// Shapes    questions: [n, 4] (read), an operation and three words; found: [n] (written)
// Order     one operation or elementary function for each question
// Rounding  as the operation's name says
// Special   none
// Aliasing  none
// Source    docs/spec/profile.md#numbers
KERNEL answers(TENSOR(const uint, questions), TENSOR(uint, found), uint n) {
    AT(const uint, questions);
    AT(uint, found);
    for (uint i = GROUP_X * ITEMS + ITEM; i < n; i += GROUPS_X * ITEMS) {
        const float a = float_of(questions[4 * i + 1]);
        const float b = float_of(questions[4 * i + 2]);
        const float c = float_of(questions[4 * i + 3]);
        float y = 0.0f;
        switch (questions[4 * i]) {
        case 0: y = f_add(a, b); break;
        case 1: y = f_sub(a, b); break;
        case 2: y = f_mul(a, b); break;
        case 3: y = f_div(a, b); break;
        case 4: y = f_sqrt(a); break;
        case 5: y = f_fma(a, b, c); break;
        case 6: y = f_add(f_mul(a, b), c); break;
        case 7: y = f_sub(f_mul(a, b), c); break;
        case 8: y = exp_v1(a); break;
        case 9: y = log_v1(a); break;
        case 10: y = tanh_v1(a); break;
        }
        found[i] = bits_of(y);
    }
}
