"""90 Notation: which indices do not move, and another library's numbering of D(n)."""
# Plain module: edited by hand, no notebook exports it.
from ...groups import D
from ..exercise import Exercise, Mistake


def orders(seed): return [(n,) for n in (1, 2, 3, 4, 6)]

def translation(n): return [int(D(n).mul[n*m, r]) for m in (0, 1) for r in range(n)]

def our_own_numbering(n): return list(range(2*n))

def turns_inverted_too(n): return [(-r) % n for r in range(n)] + [n + (-r) % n for r in range(n)]

def mirrors_from_the_last(n): return [*range(n), *range(2*n - 1, n - 1, -1)]


EXERCISES = [
    Exercise('90.1', 'predict', 2, name='unmoved', right=['h⁻¹h̃', 'h⁻¹h̃ĥ⁻¹h'], mistakes=[
        Mistake(['h⁻¹h̃', 'h⁻¹(h̃⁻¹ĥ)', 'h⁻¹h̃ĥ⁻¹h'],
                'The index h⁻¹(h̃⁻¹ĥ) does move: its bracket stays, and (gh)⁻¹ = h⁻¹g⁻¹ in front '
                'of it puts in a g⁻¹ that nothing cancels.'),
        Mistake(['h⁻¹h̃'],
                'There is one more. Insert and count: wherever an inverse meets what follows it, '
                'g⁻¹ meets g.'),
        Mistake(['h⁻¹h̃', 'h⁻¹h̃ĥ⁻¹h', 'h̃h⁻¹ĥ'],
                'The last one becomes g·h̃h⁻¹ĥ: it moves as an element does. Unmoved would be no g '
                'at all.'),
    ]),
    Exercise('90.2', 'code', 3, translation, orders, mistakes=[
        Mistake(our_own_numbering,
                'This is our own numbering: you multiply turn · mirror. Theirs turns first, so the '
                'turn stands on the right: mirror · turn.'),
        Mistake(turns_inverted_too,
                'The turns are inverted as well. Only the mirrored half is numbered differently.'),
        Mistake(mirrors_from_the_last,
                'The mirrored half comes backwards from its last element: an off-by-one. Turn 0 '
                'then mirror is the mirror itself, element n.'),
    ]),
    Exercise('90.3', 'proof', 2),
]
