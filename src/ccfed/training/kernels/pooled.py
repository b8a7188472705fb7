# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
# mypy: disable-error-code="assignment, var-annotated"
# ruff: noqa: RUF005 (Triton adds tuples, but does not unpack them)
"""Convolution, ReLU and 2x2 max-pooling of few channels as one kernel for all jobs, and its gradients.

A thread owns whole pooling windows: it keeps the window's four sums for several channels in registers while the
(k+1) x (k+1) pixels under the window pass by, so nothing like im2col is ever written. The arithmetic is plain float32
everywhere. Forward saves, per pooled value, which of the four pixels won (0 to 3, row by row), or 4 where ReLU shut it.
Kernels are square with odd k, stride 1, no padding; the pooling drops an odd last row or column, as PyTorch does.
"""

import triton
import triton.language as tl

SHUT = tl.constexpr(4)


@triton.jit
def _pixels(start, SIDE: tl.constexpr, WIDTH: tl.constexpr):
    """The SIDE x SIDE pixels from each pointer of `start` [BLOCK] on, row by row, as a tuple of tensors [BLOCK]."""
    pair = tl.arange(0, 2)[None, :]
    pixels = ()
    for row in tl.static_range(SIDE):
        for half in tl.static_range(SIDE // 2):
            two = tl.load(start[:, None] + (row * WIDTH + 2 * half) + pair)
            left, right = tl.split(two)
            pixels = pixels + (left, right)
    return pixels


@triton.jit
def _correlate(pixels, kernel, a, b, c, d, SIDE: tl.constexpr, TURNED: tl.constexpr):
    """Adds to a window's four sums (row by row) the pixels times `kernel` (a pointer), turned by 180 degrees if
    asked."""
    SIZE: tl.constexpr = SIDE - 1
    for y in tl.static_range(SIZE):
        for x in tl.static_range(SIZE):
            tap = tl.load(kernel + ((SIZE - 1 - y) * SIZE + SIZE - 1 - x if TURNED else y * SIZE + x))
            a += pixels[y * SIDE + x] * tap
            b += pixels[y * SIDE + x + 1] * tap
            c += pixels[(y + 1) * SIDE + x] * tap
            d += pixels[(y + 1) * SIDE + x + 1] * tap
    return a, b, c, d


@triton.jit
def _active(steps, cursor, ahead, job):
    return tl.load(cursor).to(tl.int32) + ahead < tl.load(steps + job)


@triton.jit
def _forward(
    x, weights, out, winner, steps, cursor, ahead, params_stride,
    BATCH: tl.constexpr, IN: tl.constexpr, OUT: tl.constexpr, SIDE: tl.constexpr,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, TILE: tl.constexpr, BLOCK: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    SIZE: tl.constexpr = SIDE - 1
    ROWS: tl.constexpr = (HEIGHT - SIZE + 1) // 2
    COLUMNS: tl.constexpr = (WIDTH - SIZE + 1) // 2
    WINDOWS: tl.constexpr = BATCH * ROWS * COLUMNS
    job = (tl.program_id(0) // BLOCKS).to(tl.int64)
    if not _active(steps, cursor, ahead, job):
        return
    first = tl.program_id(1) * TILE
    window = (tl.program_id(0) % BLOCKS) * BLOCK + tl.arange(0, BLOCK)
    safe = tl.minimum(window, WINDOWS - 1)
    image = safe // (ROWS * COLUMNS)
    cell = safe % (ROWS * COLUMNS)
    row = cell // COLUMNS
    column = cell % COLUMNS
    start = x + job * (BATCH * IN * HEIGHT * WIDTH) + image * (IN * HEIGHT * WIDTH) + row * (2 * WIDTH) + column * 2
    kernels = weights + job * params_stride + first * (IN * SIZE * SIZE)
    biases = weights + job * params_stride + OUT * IN * SIZE * SIZE + first
    sums = ()
    for channel in tl.static_range(TILE):
        bias = tl.load(biases + channel) + tl.zeros([BLOCK], tl.float32)
        sums = sums + (bias, bias, bias, bias)
    for channel_in in range(IN):
        pixels = _pixels(start + channel_in * (HEIGHT * WIDTH), SIDE, WIDTH)
        grown = ()
        for channel in tl.static_range(TILE):
            grown = grown + _correlate(
                pixels, kernels + (channel * IN + channel_in) * (SIZE * SIZE),
                sums[4 * channel], sums[4 * channel + 1], sums[4 * channel + 2], sums[4 * channel + 3], SIDE, False,
            )  # fmt: skip
        sums = grown
    place = job * (BATCH * OUT * ROWS * COLUMNS) + image * (OUT * ROWS * COLUMNS) + first * (ROWS * COLUMNS) + cell
    for channel in tl.static_range(TILE):
        best = sums[4 * channel]
        which = tl.zeros([BLOCK], tl.int32)
        for rival in tl.static_range(1, 4):
            value = sums[4 * channel + rival]
            which = tl.where(value > best, rival, which)
            best = tl.where(value > best, value, best)
        which = tl.where(best <= 0.0, SHUT, which)
        best = tl.where(best <= 0.0, 0.0, best)  # a NaN stays a NaN
        here = place + channel * (ROWS * COLUMNS)
        tl.store(out + here, best, mask=window < WINDOWS)
        tl.store(winner + here, which.to(tl.uint8), mask=window < WINDOWS)


@triton.jit
def _weight_gradient(
    x, error, winner, parts, steps, cursor, ahead, parts_stride,
    BATCH: tl.constexpr, IN: tl.constexpr, OUT: tl.constexpr, SIDE: tl.constexpr,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, TILE: tl.constexpr, BLOCK: tl.constexpr, GROUPS: tl.constexpr,
    MOST_GROUPS: tl.constexpr,
):  # fmt: skip
    SIZE: tl.constexpr = SIDE - 1
    TAPS: tl.constexpr = SIZE * SIZE
    ROWS: tl.constexpr = (HEIGHT - SIZE + 1) // 2
    COLUMNS: tl.constexpr = (WIDTH - SIZE + 1) // 2
    WINDOWS: tl.constexpr = BATCH * ROWS * COLUMNS
    job = (tl.program_id(0) // GROUPS).to(tl.int64)
    if not _active(steps, cursor, ahead, job):
        return
    group = tl.program_id(0) % GROUPS
    channel_in = tl.program_id(1) % IN
    first = (tl.program_id(1) // IN) * TILE
    x += job * (BATCH * IN * HEIGHT * WIDTH) + channel_in * (HEIGHT * WIDTH)
    error += job * (BATCH * OUT * ROWS * COLUMNS) + first * (ROWS * COLUMNS)
    winner += job * (BATCH * OUT * ROWS * COLUMNS) + first * (ROWS * COLUMNS)
    zero = tl.zeros([BLOCK], tl.float32)
    sums = ()
    for _ in tl.static_range(TILE * (TAPS + 1)):
        sums = sums + (zero,)
    SHARE: tl.constexpr = (WINDOWS + GROUPS * BLOCK - 1) // (GROUPS * BLOCK) * BLOCK
    for begin in range(0, SHARE, BLOCK):
        window = group * SHARE + begin + tl.arange(0, BLOCK)
        real = window < WINDOWS
        safe = tl.minimum(window, WINDOWS - 1)
        image = safe // (ROWS * COLUMNS)
        cell = safe % (ROWS * COLUMNS)
        row = cell // COLUMNS
        column = cell % COLUMNS
        pixels = _pixels(x + image * (IN * HEIGHT * WIDTH) + row * (2 * WIDTH) + column * 2, SIDE, WIDTH)
        place = image * (OUT * ROWS * COLUMNS) + cell
        grown = ()
        for channel in tl.static_range(TILE):
            value = tl.load(error + place + channel * (ROWS * COLUMNS), mask=real, other=0.0)
            which = tl.load(winner + place + channel * (ROWS * COLUMNS), mask=real, other=SHUT).to(tl.int32)
            a = tl.where(which == 0, value, 0.0)
            b = tl.where(which == 1, value, 0.0)
            c = tl.where(which == 2, value, 0.0)
            d = tl.where(which == 3, value, 0.0)
            for y in tl.static_range(SIZE):
                for across in tl.static_range(SIZE):
                    total = sums[channel * (TAPS + 1) + y * SIZE + across]
                    total += a * pixels[y * SIDE + across]
                    total += b * pixels[y * SIDE + across + 1]
                    total += c * pixels[(y + 1) * SIDE + across]
                    total += d * pixels[(y + 1) * SIDE + across + 1]
                    grown = grown + (total,)
            grown = grown + (sums[channel * (TAPS + 1) + TAPS] + tl.where(which == SHUT, 0.0, value),)
        sums = grown
    parts += (job * MOST_GROUPS + group) * parts_stride
    for channel in tl.static_range(TILE):
        for tap in tl.static_range(TAPS):
            place = ((first + channel) * IN + channel_in) * TAPS + tap
            tl.store(parts + place, tl.sum(sums[channel * (TAPS + 1) + tap], 0))
        bias = tl.sum(sums[channel * (TAPS + 1) + TAPS], 0)
        if channel_in == 0:
            tl.store(parts + OUT * IN * TAPS + first + channel, bias)


@triton.jit
def _input_gradient(
    weights, error, winner, out, steps, cursor, ahead, params_stride,
    BATCH: tl.constexpr, IN: tl.constexpr, OUT: tl.constexpr, SIDE: tl.constexpr,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, TILE: tl.constexpr, BLOCK: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    SIZE: tl.constexpr = SIDE - 1
    TAPS: tl.constexpr = SIZE * SIZE
    ROWS: tl.constexpr = (HEIGHT - SIZE + 1) // 2
    COLUMNS: tl.constexpr = (WIDTH - SIZE + 1) // 2
    DOWN: tl.constexpr = (HEIGHT + 1) // 2
    ACROSS: tl.constexpr = (WIDTH + 1) // 2
    SQUARES: tl.constexpr = BATCH * DOWN * ACROSS
    job = (tl.program_id(0) // BLOCKS).to(tl.int64)
    if not _active(steps, cursor, ahead, job):
        return
    first = tl.program_id(1) * TILE
    square = (tl.program_id(0) % BLOCKS) * BLOCK + tl.arange(0, BLOCK)
    real = square < SQUARES
    safe = tl.minimum(square, SQUARES - 1)
    image = safe // (DOWN * ACROSS)
    row = (safe % (DOWN * ACROSS)) // ACROSS
    column = safe % ACROSS
    kernels = weights + job * params_stride + first * TAPS
    error += job * (BATCH * OUT * ROWS * COLUMNS)
    winner += job * (BATCH * OUT * ROWS * COLUMNS)
    corner = image * (OUT * ROWS * COLUMNS) + (row - SIZE // 2) * COLUMNS + column - SIZE // 2
    zero = tl.zeros([BLOCK], tl.float32)
    sums = ()
    for _ in tl.static_range(4 * TILE):
        sums = sums + (zero,)
    for channel_out in range(OUT):
        pixels = ()
        for y in tl.static_range(SIDE // 2):
            upper = ()
            lower = ()
            for x in tl.static_range(SIDE // 2):
                high = row + y - SIZE // 2
                wide = column + x - SIZE // 2
                inside = (high >= 0) & (high < ROWS) & (wide >= 0) & (wide < COLUMNS)
                place = corner + channel_out * (ROWS * COLUMNS) + y * COLUMNS + x
                value = tl.load(error + place, mask=inside, other=0.0)
                which = tl.load(winner + place, mask=inside, other=SHUT).to(tl.int32)
                upper = upper + (tl.where(which == 0, value, 0.0), tl.where(which == 1, value, 0.0))
                lower = lower + (tl.where(which == 2, value, 0.0), tl.where(which == 3, value, 0.0))
            pixels = pixels + upper + lower
        grown = ()
        for channel in tl.static_range(TILE):
            grown = grown + _correlate(
                pixels, kernels + (channel_out * IN + channel) * TAPS,
                sums[4 * channel], sums[4 * channel + 1], sums[4 * channel + 2], sums[4 * channel + 3], SIDE, True,
            )  # fmt: skip
        sums = grown
    out += job * (BATCH * IN * HEIGHT * WIDTH) + first * (HEIGHT * WIDTH)
    for channel in tl.static_range(TILE):
        for part in tl.static_range(4):
            high = 2 * row + part // 2
            wide = 2 * column + part % 2
            place = image * (IN * HEIGHT * WIDTH) + channel * (HEIGHT * WIDTH) + high * WIDTH + wide
            tl.store(out + place, sums[4 * channel + part], mask=real & (high < HEIGHT) & (wide < WIDTH))


@triton.jit
def _update(
    weights, parts, rates, steps, cursor, ahead, params_stride, parts_stride,
    COUNT: tl.constexpr, GROUPS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    job = tl.program_id(0).to(tl.int64)
    if not _active(steps, cursor, ahead, job):
        return
    here = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    gradient = tl.zeros([BLOCK], tl.float32)
    for group in range(GROUPS):
        gradient += tl.load(parts + (job * GROUPS + group) * parts_stride + here, mask=here < COUNT, other=0.0)
    old = tl.load(weights + job * params_stride + here, mask=here < COUNT, other=0.0)
    tl.store(weights + job * params_stride + here, old - tl.load(rates + job) * gradient, mask=here < COUNT)


def tile(channels: int, most: int) -> int:
    """How many of `channels` channels a program takes: the largest divisor up to `most`."""
    return next(size for size in range(min(channels, most), 0, -1) if channels % size == 0)
