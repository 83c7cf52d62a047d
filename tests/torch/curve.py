"""A picture of two loss curves laid over each other, and of their distance, as plain SVG."""

import math

WIDTH, LEFT, RIGHT = 760, 70, 20
LOSS_TOP, LOSS_BOTTOM = 60, 300
GAP_TOP, GAP_BOTTOM = 350, 500
OURS, THEIRS = "#c2410c", "#1d4ed8"


def line(points, color, more=""):
    at = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{at}" fill="none" stroke="{color}" {more}/>'


def text(x, y, words, more=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" {more}>{words}</text>'


def rule(y, words):
    """A horizontal line of the grid with its number."""
    grid = f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>'
    return grid + text(LEFT - 8, y + 4, words, 'text-anchor="end"')


def draw(title, ours, theirs, wide):
    """Mean losses by step: ours, PyTorch's in float32 and PyTorch's in float64."""
    steps = len(ours)
    x = lambda step: LEFT + step / max(1, steps - 1) * (WIDTH - LEFT - RIGHT)
    top = math.ceil(max(ours + theirs))
    y = lambda loss: LOSS_BOTTOM - loss / top * (LOSS_BOTTOM - LOSS_TOP)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {GAP_BOTTOM + 50}" font-family="sans-serif" '
        'font-size="12" fill="#222">',
        '<rect width="100%" height="100%" fill="white"/>',
        text(LEFT, 24, title, 'font-size="15" font-weight="bold"'),
    ]
    out += [rule(y(loss), str(loss)) for loss in range(top + 1)]
    out.append(line([(x(i), y(loss)) for i, loss in enumerate(ours)], OURS, 'stroke-width="5" stroke-opacity="0.35"'))
    out.append(line([(x(i), y(loss)) for i, loss in enumerate(theirs)], THEIRS, 'stroke-width="1.2"'))
    out.append(text(LEFT, 46, "mean loss: Tallystick (wide), PyTorch float32 (thin)"))

    gaps = [[abs(a - b) / b for a, b in zip(curve, wide)] for curve in (ours, theirs)]
    low, high = -9, max(-5, math.ceil(math.log10(max(max(gap) for gap in gaps))))
    z = lambda gap: GAP_BOTTOM - (max(low, math.log10(max(gap, 1e-300))) - low) / (high - low) * (GAP_BOTTOM - GAP_TOP)
    out += [rule(z(10.0**power), f"1e{power}") for power in range(low, high + 1)]
    for gap, color in zip(gaps, (OURS, THEIRS)):
        out.append(line([(x(i), z(value)) for i, value in enumerate(gap)], color, 'stroke-width="1.2"'))
    out.append(text(LEFT, GAP_TOP - 14, "distance from PyTorch float64, as a fraction of the loss:"))
    out.append(text(LEFT + 340, GAP_TOP - 14, "Tallystick", f'fill="{OURS}"'))
    out.append(text(LEFT + 410, GAP_TOP - 14, "PyTorch float32", f'fill="{THEIRS}"'))
    for step in range(0, steps + 1, max(1, steps // 8)):
        out.append(text(x(min(step, steps - 1)), GAP_BOTTOM + 20, str(step), 'text-anchor="middle"'))
    out.append(text((LEFT + WIDTH - RIGHT) / 2, GAP_BOTTOM + 40, "step", 'text-anchor="middle"'))
    return "\n".join(out + ["</svg>\n"])
