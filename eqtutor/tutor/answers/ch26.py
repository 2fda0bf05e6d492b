"""26 Beyond the grid: turns that are no permutation, exact turns of a grid, zeros."""
# Plain module: edited by hand, no notebook exports it.
import math

import torch

from ..exercise import Exercise, Mistake
from .draws import dice, shuffled, some

QUARTERS = [0, 90, 180, 270]

def of_a_turn(A, case):
    "Do the rows sum to 1, which powers are 1, is an entry negative, in float64?"
    if A.shape != (3, 3): return [False]*4
    T, n = A.double(), case[0]
    powers = (torch.linalg.matrix_power(T, k) - torch.eye(3) for k in range(1, n + 1))
    return [bool((T.sum(1) - 1).abs().max() < 1e-9),
            [k for k, rest in enumerate(powers, 1) if rest.abs().max() < 1e-9],
            bool(T.min() < -.01), A.dtype == torch.float64]

OF_TURNS = ('rows that sum to 1', 'the n-th power is 1 and no smaller one is', 'a negative entry',
            'numbers in float64')


def orders(seed): return [(n,) for n in [2, *some(range(4, 13), 3, seed)]]

def turn_about(axis, n, whole=2*math.pi):
    x, y, z = (a/math.hypot(*axis) for a in axis)
    K = torch.tensor([[0, -z, y], [z, 0, -x], [-y, x, 0]], dtype=torch.float64)
    return torch.linalg.matrix_exp(whole/n*K)

def turn_of_three(n): return turn_about((1, 1, 1), n)

def about_an_axis(n): return turn_about((0, 0, 1), n)

def cyclic_shift(n): return torch.eye(3, dtype=torch.float64).roll(1, 0)

def nothing(n): return torch.eye(3, dtype=torch.float64)

def in_float32(n): return turn_of_three(n).float()

def in_degrees(n): return turn_about((1, 1, 1), n, 360)


def turn(angle):
    "The matrix of a turn, in float64."
    c, s = math.cos(angle), math.sin(angle)
    return torch.tensor([[c, -s], [s, c]], dtype=torch.float64)

def turned_grids(seed):
    "A grid of each of five kinds, twice, turned, scaled, and in a basis drawn by chance."
    return shuffled([(turned_grid(i % 5, seed + i),) for i in range(10)], seed)

def turned_grid(kind, seed):
    "A square, hexagonal, rectangular, rhombic or oblique grid, from the seed."
    u = torch.rand(4, dtype=torch.float64, generator=dice(seed))
    a, b = torch.randint(-2, 3, (2,), generator=dice(seed)).tolist()
    second = [(0, 1), (.5, .75**.5), (0, 1.2 + u[0]), (.5, 1.1 + u[0]),
              (.1 + .3*u[1], 1.1 + u[0])][kind]
    grid = torch.tensor([[1, float(second[0])], [0, float(second[1])]], dtype=torch.float64)
    change = torch.tensor([[1, a], [0, 1]]) @ torch.tensor([[1, 0], [b, 1]])
    return turn(6*float(u[3])) @ ((1 + u[2])*grid) @ change.double()

def whole_turns(of_turn, first=1):
    "The n up to 12 for which what one makes of the turn by 360°/n has whole entries."
    values = {n: of_turn(turn(2*math.pi/n)) for n in range(first, 13)}
    return [n for n, m in values.items() if (m - m.round()).abs().max() < 1e-6]

def exact_turns(basis): return whole_turns(lambda R: torch.linalg.solve(basis, R @ basis))

def whole_trace(basis): return whole_turns(torch.trace)

def square_grid(basis): return whole_turns(lambda R: R)

def exactly_whole(basis):
    values = {n: torch.linalg.solve(basis, turn(2*math.pi/n) @ basis) for n in range(1, 13)}
    return [n for n, m in values.items() if torch.equal(m, m.round())]

def basis_inverted(basis): return whole_turns(lambda R: basis @ R @ torch.linalg.inv(basis))

def without_the_identity(basis):
    return whole_turns(lambda R: torch.linalg.solve(basis, R @ basis), first=2)


def multiples(n): return [k*360//n for k in range(n)]


EXERCISES = [
    Exercise('26.1', 'code', 2, turn_of_three, orders, measure=of_a_turn, facts=OF_TURNS,
             mistakes=[
        Mistake(about_an_axis,
                'A turn about a coordinate axis is an action, but its rows do not sum to 1: it '
                'must keep (1, 1, 1).'),
        Mistake(cyclic_shift,
                'A cyclic shift is a permutation, and its order is 3. Turn about the same axis, '
                '(1, 1, 1), by another angle.'),
        Mistake(nothing, 'The identity is a permutation, and already its first power is 1.'),
        Mistake(in_degrees,
                'No power of your matrix is 1 by the n-th. The angle must be 2π/n, in radians, '
                'and the axis in K must have length 1.'),
        Mistake(in_float32,
                'You compute in float32, which has seven digits: make the matrix in float64.'),
    ]),
    Exercise('26.2', 'proof', 3),
    Exercise('26.3', 'code', 3, exact_turns, turned_grids, mistakes=[
        Mistake(whole_trace,
                'A whole trace is necessary and does not suffice: it is the same for every grid. '
                'Ask for all four entries of B⁻¹RB.'),
        Mistake(square_grid,
                'Your answer is that of the square grid: you look at the turn itself. In steps of '
                'this grid it is B⁻¹RB.'),
        Mistake(basis_inverted,
                'The wrong way round, or rows for columns: B takes steps to places, then comes the '
                'turn, and B⁻¹ takes places to steps: B⁻¹RB.'),
        Mistake(exactly_whole,
                'Your test misses entries that are whole up to rounding; floats are exactly so '
                'only by luck. Compare with `round()`, and allow 10⁻⁶.'),
        Mistake(without_the_identity,
                'The turn by 360° moves nothing: n = 1 belongs to every grid.'),
    ]),
    Exercise('26.4', 'predict', 2, name='touches_zero',
             right={'C2': [0, 180], 'C6': [0, 180], 'C8': QUARTERS, 'C12': QUARTERS}, mistakes=[
        Mistake({f'C{n}': multiples(n) for n in (2, 6, 8, 12)},
                'Between the quarter turns an element of the group has the error of the pixels: a '
                'valley, but not zero (Theorem 26.4).'),
        Mistake(dict.fromkeys(('C2', 'C6', 'C8', 'C12'), QUARTERS),
                'A turn by 90° is exact on pixels, but no element of C2 or C6: their maximum is '
                'over other kernels afterwards.'),
        Mistake({'C2': [0, 180], 'C6': [0], 'C8': QUARTERS, 'C12': QUARTERS},
                'Three steps of 60° are a half turn: 180° is an element of C6, and exact on '
                'pixels.'),
    ]),
]
