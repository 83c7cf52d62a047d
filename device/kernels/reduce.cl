// Sums of the gradient tree, and the multiply that makes its root the reduced gradient. A group takes `span` elements
// from the first that is its own; which item takes which changes no bit.

// A node of the tree: the sum of its two halves, in place of one of them.
//
// Shapes    node: [n] (read and written), other: [n] (read)
// Order     node = node + other if node_is_left, otherwise other + node
// Rounding  f32 nearest-even after the add
// Special   none
// Aliasing  node in place
// Source    docs/spec/plan.md#tree
KERNEL tree_add(TENSOR(float, node), TENSOR(const float, other), ulong n, ulong span, uint node_is_left) {
    AT(float, node);
    AT(const float, other);
    const ulong first = GROUP_X * span;
    const ulong end = first + span < n ? first + span : n;
    if (node_is_left) {
        for (ulong i = first + ITEM; i < end; i += ITEMS) node[i] = f_add(node[i], other[i]);
    } else {
        for (ulong i = first + ITEM; i < end; i += ITEMS) node[i] = f_add(other[i], node[i]);
    }
}

// The reduced gradient.
//
// Shapes    x: [n] (read and written)
// Order     x = x * factor
// Rounding  f32 nearest-even after the multiply
// Special   none
// Aliasing  in place
// Source    docs/spec/plan.md#tree
KERNEL scale(TENSOR(float, x), ulong n, ulong span, float factor) {
    AT(float, x);
    const ulong first = GROUP_X * span;
    const ulong end = first + span < n ? first + span : n;
    for (ulong i = first + ITEM; i < end; i += ITEMS) x[i] = f_mul(x[i], factor);
}
