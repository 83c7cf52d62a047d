// Cross-entropy of each row against its target.
//
// Shapes    logits: [rows, width], targets: [rows] (read); loss, max, sum: [rows] (written); `each` rows to a group
// Order     warp32 for the largest and for the sum
// Rounding  f32 nearest-even after every operation written
// Special   none
// Aliasing  none
// Source    docs/spec/profile.md#cross-entropy
KERNEL cross_entropy(TENSOR(const float, logits), TENSOR(const uint, targets), TENSOR(float, loss),
                     TENSOR(float, largest), TENSOR(float, sum), uint rows, uint width, uint each, KEY,
                     SUMS(loss), SUMS(largest), SUMS(sum)) {
    FOLDING;
    MEETING;
    AT(const float, logits);
    AT(const uint, targets);
    AT(float, loss);
    AT(float, largest);
    AT(float, sum);
    FOLD(loss);
    FOLD(largest);
    FOLD(sum);
    EACH_ROW(row, here, rows, width, each)
        GLOBAL const float *x = logits + row * width;
        float lane[OWN_LANES];
        lanes_start(lane, float_of(0xff800000u));
        IN_LANES(l, i, here, lane[l] = larger(lane[l], x[i]);)
        const float m = lanes_larger(lane, MEET);
        lanes_start(lane, 0.0f);
        IN_LANES(l, i, here, lane[l] = f_add(lane[l], exp_v1(f_sub(x[i], m)));)
        const float z = lanes_sum(lane, MEET);
        if (here > 0 && ROW_FIRST == 0) {
            const float lost = f_sub(f_add(log_v1(z), m), x[targets[row]]);
            loss[row] = lost;
            largest[row] = m;
            sum[row] = z;
            FOLD_ONE(loss, row, lost);
            FOLD_ONE(largest, row, m);
            FOLD_ONE(sum, row, z);
        }
    END_ROW
    FOLD_END(loss);
    FOLD_END(largest);
    FOLD_END(sum);
}

// A leaf's loss, by one item.
//
// Shapes    loss: [rows] (read); mean: [1] (written)
// Order     one sum over rows, ascending, from +0
// Rounding  f32 nearest-even after every operation
// Special   a NaN is 0x7fc00000
// Aliasing  none
// Source    docs/spec/profile.md#cross-entropy
KERNEL mean_loss(TENSOR(const float, loss), TENSOR(float, mean), uint rows, float inv_n) {
    AT(const float, loss);
    AT(float, mean);
    if (ITEM == 0 && GROUP_X == 0) {
        float sum = 0.0f;
        for (uint row = 0; row < rows; row++) sum = f_add(sum, loss[row]);
        mean[0] = float_of(word_of(f_mul(sum, inv_n)));
    }
}

// Its gradient.
//
// Shapes    logits: [rows, width], targets, largest, sum: [rows] (read); d_logits: as logits (written); `each` rows to
//           a group
// Order     none: elements are independent
// Rounding  f32 nearest-even after every operation written
// Special   none
// Aliasing  none
// Source    docs/spec/profile.md#cross-entropy
KERNEL cross_entropy_backward(TENSOR(const float, logits), TENSOR(const uint, targets), TENSOR(const float, largest),
                              TENSOR(const float, sum), TENSOR(float, d_logits), uint rows, uint width, uint each,
                              float inv_n, KEY, SUMS(d_logits)) {
    FOLDING;
    AT(const float, logits);
    AT(const uint, targets);
    AT(const float, largest);
    AT(const float, sum);
    AT(float, d_logits);
    FOLD(d_logits);
    EACH_ROW(row, here, rows, width, each)
        GLOBAL const float *x = logits + row * width;
        GLOBAL float *out = d_logits + row * width;
        const float m = here > 0 ? largest[row] : 0.0f, z = here > 0 ? sum[row] : 1.0f;
        const uint target = here > 0 ? targets[row] : 0;
        IN_ROW(i, here) {
            const float p = f_div(exp_v1(f_sub(x[i], m)), z);
            out[i] = f_mul(f_sub(p, i == target ? 1.0f : 0.0f), inv_n);
        }
        FOLD_RUN(d_logits, row * width + ROW_FIRST, row * width + here, ROW_STEP);
    END_ROW
    FOLD_END(d_logits);
}
