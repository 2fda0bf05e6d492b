"""02 Actions: orbits of pixels, where a bright pixel goes, sizes that keep a stack exact."""
# Plain module: edited by hand, no notebook exports it.
import torch

from ...actions import act, is_exact
from ...groups import get_group
from ..exercise import Exercise, Mistake


def grids_and_groups(seed):
    names = 'C2', 'p4', 'mirror', 'D2', 'p4m'
    return [(n, get_group(name)) for n in (1, 2, 3, 4, 5, 7) for name in names]

def moved_places(n, group):
    "The number of the pixel that each element brings to each place, `(|H|, n, n)`."
    places = torch.arange(n*n).view(1, 1, n, n)
    return torch.cat([act(group, h, places)[0] for h in group.elements])

def fixed_places(n, group):
    "Which pixels each element leaves alone, `(|H|, n, n)`."
    return moved_places(n, group) == torch.arange(n*n).view(n, n)

def count_orbits(n, group): return len(moved_places(n, group).amin(0).unique())

def pixels_that_all_leave_alone(n, group): return int(fixed_places(n, group).all(0).sum())

def pixels_over_elements(n, group): return n*n//len(group)

def sum_without_the_mean(n, group): return int(fixed_places(n, group).sum())

def orbits_under_element_1(n, group):
    first, second = moved_places(n, group)[:2]
    return len(torch.minimum(first, second).unique())


def all_pixels(n, group): return n*n


def moved_bright(turns=1, step=1):
    "Where the bright pixel of panel 1 goes for each h; h turns the grid and steps the panels."
    f = torch.zeros(4, 3, 3)
    f[1, 0, 0] = 1
    moved = [torch.rot90(f, turns*h, (-2, -1)).roll(step*h, 0) for h in range(4)]
    return [f.nonzero()[0].tolist() for f in moved]


def stacks(seed):
    layers = [[(3, 2, 1), (3, 2, 1)],
              [(3, 1, 1), (2, 2, 0), (2, 2, 0)],
              [(5, 2, 0), (3, 3, 1)],
              [(2, 2, 0), (3, 2, 1), (2, 1, 0)],
              [(3, 2, 0)]]
    return [(n, stack) for n in range(16, 34) for stack in layers]

def sizes_before(n, layers, extra=1):
    "The size that each layer (kernel, stride, padding) finds; `extra=0` forgets the last window."
    sizes = [n]
    for k, s, p in layers[:-1]: sizes.append((sizes[-1] + 2*p - k)//s + extra)
    return sizes

def exact_through(n, layers):
    return all(is_exact(m, *layer) for m, layer in zip(sizes_before(n, layers), layers))

def all_at_the_input_size(n, layers): return all(is_exact(n, k, s, p) for k, s, p in layers)

def one_window_too_few(n, layers):
    return all(is_exact(m, *layer) for m, layer in zip(sizes_before(n, layers, 0), layers))

def last_layer_only(n, layers): return is_exact(sizes_before(n, layers)[-1], *layers[-1])

def through_a_loop(n, layers, size_first=False, strided=True):
    "The loop over the layers, with what may be wrong in it as arguments."
    exact = []
    for k, s, p in layers:
        after = (n + 2*p - k)//(s if strided else 1) + 1
        exact.append(is_exact(after if size_first else n, k, s, p))
        n = after
    return exact

def any_layer(n, layers): return any(through_a_loop(n, layers))

def first_layer_only(n, layers): return through_a_loop(n, layers)[0]

def size_too_early(n, layers): return all(through_a_loop(n, layers, size_first=True))

def stride_forgotten(n, layers): return all(through_a_loop(n, layers, strided=False))

def padding_on_one_side(n, layers):
    return all((m + p - k) % s == 0 for m, (k, s, p) in zip(sizes_before(n, layers), layers))


EXERCISES = [
    Exercise('2.1', 'proof', 3),
    Exercise('2.2', 'code', 3, count_orbits, grids_and_groups, mistakes=[
        Mistake(pixels_that_all_leave_alone,
                'This is the number of pixels that *all* elements leave alone. An orbit may be '
                'larger than one pixel.'),
        Mistake(pixels_over_elements,
                'You divide the pixels evenly among the elements, but pixels on an axis have '
                'smaller orbits. Burnside: the *mean* number of fixed pixels.'),
        Mistake(sum_without_the_mean,
                "You add the fixed pixels of all elements up; Burnside's lemma divides by |H|."),
        Mistake(orbits_under_element_1,
                'Only element 1 and its pixel are compared. An orbit collects the places under '
                '*every* element.'),
        Mistake(all_pixels,
                'Your number is that of the pixels. Give all pixels of an orbit one name before '
                'you count; and count by `.unique()`, for in a set no two tensors are equal.'),
    ]),
    Exercise('2.3', 'predict', 2, name='bright', right=moved_bright(), mistakes=[
        Mistake(moved_bright(step=0),
                'Your panels stay where they are. The group moves the grid *and* the group axis: '
                'panel q goes to panel hq.'),
        Mistake(moved_bright(turns=-1),
                'Your grid turns clockwise. Element 1 is counter-clockwise: the top left corner '
                'goes to the bottom left.'),
        Mistake(moved_bright(step=-1),
                'Your panels go the wrong way round: panel q goes *to* hq and comes *from* h⁻¹q.'),
        Mistake(moved_bright(turns=0), 'The panels are right, but each must turn as well.'),
    ]),
    Exercise('2.4', 'code', 3, exact_through, stacks, mistakes=[
        Mistake(all_at_the_input_size,
                'You test every layer at the size of the input. The second sees what the first '
                'leaves: (n + 2p − k)//s + 1 pixels.'),
        Mistake(one_window_too_few,
                'Your size after a layer is off by one: (n + 2p − k)//s *plus one* windows fit.'),
        Mistake(last_layer_only,
                'You test the last layer only. The whole keeps the symmetry if every layer does '
                '(Proposition 4.2 will say so), and one that does not can spoil it.'),
        Mistake(any_layer, 'Yours is True if *any* layer is exact. All must be.'),
        Mistake(first_layer_only,
                'You answer after the first layer. Is `return` inside the loop, before the others '
                'were tested?'),
        Mistake(size_too_early,
                'You test each layer at the size that it leaves. It is exact or not at the size '
                'that it *finds*: test first, then compute the next size.'),
        Mistake(stride_forgotten,
                'Your size after a layer does not know the stride: windows begin at every s-th '
                'pixel.'),
        Mistake(padding_on_one_side, 'The padding counts on both sides: n + 2p, not n + p.'),
    ]),
]
