// What attention does between its matrix products, on the T x T matrices of some heads: s[u] for keys u <= t.

// Softmax of each query's products with its keys, in place; its largest and its sum.
//
// Shapes    s: [rows, times] (changed, first t + 1 of each row), rows being queries of whole heads, the first of which
//           is row `first` of all; largest, sum: [all rows] (written); `each` rows to a group
// Order     warp32 for the largest and for the sum
// Rounding  f32 nearest-even after every operation written
// Special   later keys are passed over
// Aliasing  none
// Source    docs/spec/profile.md#attention
KERNEL attention_softmax(TENSOR(float, s), TENSOR(float, largest), TENSOR(float, sum), uint rows, uint times,
                         ulong first, uint each, float scale, KEY, SUMS(largest), SUMS(sum)) {
    FOLDING;
    MEETING;
    AT(float, s);
    AT(float, largest);
    AT(float, sum);
    FOLD(largest);
    FOLD(sum);
    EACH_ROW(row, here, rows, (uint)(row % times) + 1, each)
        GLOBAL float *x = s + row * times;
        float lane[OWN_LANES];
        lanes_start(lane, float_of(0xff800000u));
        IN_LANES(l, i, here, lane[l] = larger(lane[l], f_mul(x[i], scale));)
        const float m = lanes_larger(lane, MEET);
        IN_ROW(i, here) x[i] = exp_v1(f_sub(f_mul(x[i], scale), m));
        lanes_start(lane, 0.0f);
        // An item reads what itself wrote: lanes and elements are dealt alike.
        IN_LANES(l, i, here, lane[l] = f_add(lane[l], x[i]);)
        const float z = lanes_sum(lane, MEET);
        IN_ROW(i, here) x[i] = f_div(x[i], z);
        if (here > 0 && ROW_FIRST == 0) {
            largest[first + row] = m;
            sum[first + row] = z;
            FOLD_ONE(largest, first + row, m);
            FOLD_ONE(sum, first + row, z);
        }
    END_ROW
    FOLD_END(largest);
    FOLD_END(sum);
}

// Gradient of each query's products with its keys, in place of the gradients of its softmax, whose values take the
// place of the products.
//
// Shapes    s, ds: [rows, times] (changed, first t + 1 of each row): products and dp, then p and ds; rows as above from
//           unit `first` on; d_out, out: [batches x times, heads x size], largest, sum: [all rows] (read); `each` rows
//           to a group
// Order     warp32 for D
// Rounding  f32 nearest-even after every operation written
// Special   later keys are passed over
// Aliasing  none
// Source    docs/spec/profile.md#attention
KERNEL attention_gradient(TENSOR(float, s), TENSOR(float, ds), TENSOR(const float, d_out), TENSOR(const float, out),
                          TENSOR(const float, largest), TENSOR(const float, sum), uint rows, uint times, uint heads,
                          uint size, uint first, uint each, float scale) {
    MEETING;
    AT(float, s);
    AT(float, ds);
    AT(const float, d_out);
    AT(const float, out);
    AT(const float, largest);
    AT(const float, sum);
    EACH_ROW(row, here, rows, (uint)(row % times) + 1, each)
        const uint unit = first + (uint)(row / times), t = (uint)(row % times);
        const ulong at = ((ulong)(unit / heads) * times + t) * heads * size + (ulong)(unit % heads) * size;
        const uint size_here = here > 0 ? size : 0;
        float lane[OWN_LANES];
        lanes_start(lane, 0.0f);
        IN_LANES(l, i, size_here, lane[l] = f_fma(d_out[at + i], out[at + i], lane[l]);)
        const float d = lanes_sum(lane, MEET);
        const float m = here > 0 ? largest[(ulong)unit * times + t] : 0.0f;
        const float z = here > 0 ? sum[(ulong)unit * times + t] : 1.0f;
        GLOBAL float *x = s + row * times;
        GLOBAL float *y = ds + row * times;
        IN_ROW(i, here) {
            const float p = f_div(exp_v1(f_sub(f_mul(x[i], scale), m)), z);
            x[i] = p;
            y[i] = f_mul(f_mul(p, f_sub(y[i], d)), scale);
        }
    END_ROW
}
