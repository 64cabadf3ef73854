"""Draw the 1,797 digits of digits.csv: pen strokes, unsteadily held, reduced to 8x8 images.

    python3 draw_digits.py > digits.csv

One image a line: 64 inks from 0 to 16, row by row, then the digit. An image is drawn on a 32x32
bitmap, and each of its 4x4 blocks is then counted. This is the file format of the "Optical
Recognition of Handwritten Digits" set, so that set can take this one's place.
"""

import math
import random
from itertools import pairwise

COUNT = 1797
SIDE = 32
BLOCK = 4

Point = tuple[float, float]
Stroke = list[Point]


def arc(x: float, y: float, rx: float, ry: float, start: float, end: float) -> Stroke:
    """The curve around (x, y), in eighths of a turn, clockwise from three o'clock."""
    turns = [start + (end - start) * i / 12 for i in range(13)]
    return [(x + rx * math.cos(t * math.pi / 4), y + ry * math.sin(t * math.pi / 4)) for t in turns]


# Several hands per digit, in a unit square with y pointing down.
HANDS: dict[int, list[list[Stroke]]] = {
    0: [[arc(0.5, 0.5, 0.3, 0.45, 0, 8)], [arc(0.5, 0.5, 0.24, 0.45, -3, 5.4)]],
    1: [[[(0.5, 0.05), (0.5, 0.95)]], [[(0.32, 0.25), (0.52, 0.05), (0.52, 0.95)]]],
    2: [
        [[*arc(0.5, 0.3, 0.27, 0.25, -4, 1), (0.22, 0.95), (0.8, 0.95)]],
        [[*arc(0.48, 0.32, 0.28, 0.27, -3.6, 1.4), (0.2, 0.9), (0.45, 0.86), (0.82, 0.95)]],
    ],
    3: [
        [arc(0.45, 0.27, 0.27, 0.22, -3.4, 2), arc(0.45, 0.71, 0.3, 0.24, -2, 3.4)],
        [[(0.2, 0.06), (0.75, 0.06), (0.45, 0.42)], arc(0.45, 0.69, 0.3, 0.26, -2, 3.4)],
    ],
    4: [
        [[(0.6, 0.05), (0.18, 0.62), (0.85, 0.62)], [(0.62, 0.4), (0.62, 0.97)]],
        [[(0.25, 0.05), (0.22, 0.5), (0.78, 0.5)], [(0.75, 0.05), (0.7, 0.97)]],
    ],
    5: [
        [[(0.78, 0.06), (0.3, 0.06), (0.26, 0.45)], arc(0.46, 0.67, 0.3, 0.27, -2.6, 3.2)],
        [[(0.72, 0.08), (0.34, 0.08), (0.3, 0.42), *arc(0.45, 0.68, 0.27, 0.26, -2, 3.4)]],
    ],
    6: [
        [[(0.66, 0.05), (0.36, 0.35), (0.24, 0.65)], arc(0.5, 0.71, 0.26, 0.24, 0, 8)],
        [[*arc(0.62, 0.5, 0.36, 0.45, -2, -4.6), *arc(0.5, 0.72, 0.24, 0.22, 3, -5)]],
    ],
    7: [
        [[(0.2, 0.07), (0.8, 0.07), (0.42, 0.95)]],
        [[(0.2, 0.1), (0.8, 0.06), (0.45, 0.95)], [(0.38, 0.5), (0.75, 0.48)]],
    ],
    8: [
        [arc(0.5, 0.27, 0.22, 0.21, 0, 8), arc(0.5, 0.71, 0.27, 0.24, 0, 8)],
        [arc(0.52, 0.26, 0.25, 0.2, 2, 9), arc(0.48, 0.7, 0.23, 0.25, -2, 6)],
    ],
    9: [
        [arc(0.5, 0.3, 0.26, 0.24, 0, 8), [(0.76, 0.3), (0.7, 0.65), (0.55, 0.96)]],
        [arc(0.48, 0.3, 0.24, 0.24, 0, 8), [(0.72, 0.3), (0.72, 0.96)]],
    ],
}


def drawn(digit: int, pen: random.Random) -> list[int]:
    """The 64 inks of one digit, leaned, stretched, shaken and shifted as `pen` has it."""
    lean, turn = pen.gauss(0, 0.18), pen.gauss(0, 0.12)
    width, height = pen.uniform(0.65, 1.0), pen.uniform(0.8, 1.05)
    right, down = pen.gauss(0, 1.2), pen.gauss(0, 1.0)
    nib = pen.uniform(1.1, 2.3)
    bitmap = [[0] * SIDE for _ in range(SIDE)]

    def placed(point: Point) -> Point:
        x = (point[0] - 0.5 + pen.gauss(0, 0.025)) * width
        y = (point[1] - 0.5 + pen.gauss(0, 0.025)) * height
        x -= lean * y
        x, y = x * math.cos(turn) - y * math.sin(turn), x * math.sin(turn) + y * math.cos(turn)
        return SIDE / 2 + right + x * 27, SIDE / 2 + down + y * 27

    def dab(x: float, y: float) -> None:
        for row in range(max(0, int(y - nib)), min(SIDE, int(y + nib) + 1)):
            for column in range(max(0, int(x - nib)), min(SIDE, int(x + nib) + 1)):
                if math.hypot(column + 0.5 - x, row + 0.5 - y) <= nib:
                    bitmap[row][column] = 1

    for stroke in pen.choice(HANDS[digit]):
        path = [placed(point) for point in stroke]
        for (x0, y0), (x1, y1) in pairwise(path):
            dabs = max(1, int(math.hypot(x1 - x0, y1 - y0) * 2))
            for i in range(dabs + 1):
                dab(x0 + (x1 - x0) * i / dabs, y0 + (y1 - y0) * i / dabs)
    blocks = range(0, SIDE, BLOCK)
    return [
        sum(sum(row[left : left + BLOCK]) for row in bitmap[top : top + BLOCK])
        for top in blocks
        for left in blocks
    ]


def main() -> None:
    """The whole set is on stdout, the same every time."""
    pen = random.Random(1797)  # noqa: S311 (a drawing, not a key)
    for _ in range(COUNT):
        digit = pen.randrange(10)
        print(*drawn(digit, pen), digit, sep=",")


if __name__ == "__main__":
    main()
