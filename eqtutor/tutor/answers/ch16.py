"16 Arrows: what the curl is, a nonlinearity that keeps directions, arrows that must be zero."
# Plain module: edited by hand, no notebook exports it.
from ..exercise import Exercise, Mistake
from .draws import normal


def fields_and_lengths(seed):
    "One arrow a pixel, several, some of them zero; from no length to more than any arrow has."
    still = normal(1, 4, 3, 3, seed=seed + 3)
    still[..., 1] = 0
    return [(normal(2, 2, 4, 3, seed=seed), .8), (normal(1, 6, 3, 5, seed=seed + 1), 1.2),
            (normal(1, 4, 2, 2, seed=seed + 2), 9.), (still, .5), (still, 0.)]

def lengths(v): return v.unflatten(1, (-1, 2)).norm(dim=2, keepdim=True)

def scaled(v, kept): return (v.unflatten(1, (-1, 2))*kept).flatten(1, 2)

def shorten(v, b): return scaled(v, (lengths(v) - b).relu()/lengths(v).clamp_min(1e-12))

def each_component(v, b): return v.sign()*(v.abs() - b).relu()

def cut_off(v, b): return (v - b).relu()

def all_channels_one_arrow(v, b):
    length = v.norm(dim=1, keepdim=True)
    return v*(length - b).relu()/length.clamp_min(1e-12)

def halves_as_pairs(v, b):
    arrows = v.unflatten(1, (2, -1))
    length = arrows.norm(dim=1, keepdim=True)
    return (arrows*(length - b).relu()/length.clamp_min(1e-12)).flatten(1, 2)

def turned_about(v, b): return scaled(v, (lengths(v) - b)/lengths(v).clamp_min(1e-12))

def long_ones_whole(v, b): return scaled(v, (lengths(v) > b).to(v))

def without_dividing(v, b): return scaled(v, (lengths(v) - b).relu())


EXERCISES = [
    Exercise('16.1', 'predict', 2, name='kind_of_curl', right='none', mistakes=[
        Mistake('image',
                'Under turns it is one. Now mirror the water: a leaf that was spun to the left is '
                'spun to the right, so the number at its place has changed its sign.'),
        Mistake('vector',
                'The curl has one channel. An arrow has two, and turns; this number does not.'),
        Mistake('invariant',
                'An invariant stays where it is. The curl stands at a place, and places move with '
                'the picture.'),
    ]),
    Exercise('16.2', 'code', 3, shorten, fields_and_lengths, mistakes=[
        Mistake(each_component,
                'You shorten each component. That turns the arrow unless both are equal: take the '
                'length of the pair.'),
        Mistake(cut_off,
                'This is the ReLU of the components: arrows to the left and down are cut off. '
                'Scale the whole arrow.'),
        Mistake(all_channels_one_arrow,
                'You take the length over all channels. Each pair of channels is an arrow.'),
        Mistake(halves_as_pairs,
                'You pair channel i with channel c + i. Channels 0 and 1 are the first arrow, 2 '
                'and 3 the second: `unflatten(1, (-1, 2))`.'),
        Mistake(turned_about,
                'Arrows shorter than b are turned about. They should become zero: a ReLU is '
                'missing.'),
        Mistake(long_ones_whole,
                'Arrows longer than b keep all of their length. They should lose b.'),
        Mistake(without_dividing,
                'You multiply the arrow by its new length, and it has the old one still: divide '
                'by it.'),
    ]),
    Exercise('16.3', 'proof', 3),
]
