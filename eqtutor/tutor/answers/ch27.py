"""27 When does attention pay: what cannot notice a turned glyph, and who told a network."""
# Plain module: edited by hand, no notebook exports it.
from ..exercise import Exercise, Mistake

BLIND = ['norm, joint', 'poses first', 'squeeze-excitation']
SEEING = ['channel attention', 'norm by pose']
TOLD = {'random corner': False, 'same corner, random': True, 'turn the cell': False}

EXERCISES = [
    Exercise('27.1', 'predict', 2, name='blind_ones', right=BLIND,
             call='sorted(fn(*case))', mistakes=[
        Mistake(SEEING, 'These two are the ones that see. Asked is who is blind.'),
        Mistake(sorted([*BLIND, *SEEING]),
                'Two see: which sum is over the places of one pose alone?'),
        Mistake(sorted([*BLIND, 'channel attention']),
                'Channel attention reads the mean over the places for each pose: 2 0 0 0 or 1 1 0 0 '
                'in the smallest example. It sees.'),
        Mistake(sorted([*BLIND, 'norm by pose']),
                'Mean and variance of one pose change when a glyph leaves this pose, and after '
                'ReLU the joint mean shows it. The norm by pose sees.'),
        Mistake([name for name in BLIND if name != 'squeeze-excitation'],
                'A mean over G is a joint mean: the factors are the same for both pictures, and '
                'squeeze-excitation is blind.'),
        Mistake([name for name in BLIND if name != 'poses first'],
                'The maximum over the poses at a place is carried along with the place, and the '
                'mean over places does not ask where. The network is blind.'),
        Mistake([name for name in BLIND if name != 'norm, joint'],
                'Mean and variance over places and poses are sums over all of them: the values '
                'have only changed places. The joint norm is blind.'),
    ]),
    Exercise('27.2', 'predict', 2, name='tells', right=TOLD, mistakes=[
        Mistake({**TOLD, 'random corner': True},
                'In a single pair of pictures the network does see a difference. But if the '
                'corners are independent of the poses, each relative pose is as frequent with one '
                'answer as with the other: nothing can be learnt on the average.'),
        Mistake({**TOLD, 'same corner, random': False},
                'One corner for both glyphs is enough: seen from it, two glyphs of the same pose '
                'have one relative pose, and two of different poses have two.'),
        Mistake({**TOLD, 'turn the cell': True},
                'The corner turns with the cell, about a corner of the pool\'s grid: this is the '
                'proposition, and the network is blind to each single pair.'),
        Mistake(dict.fromkeys(TOLD, True),
                'Two of the three are repaired: where the corner of one glyph says nothing of the '
                'other\'s, relative poses say nothing of the answer.'),
    ]),
    Exercise('27.3', 'proof', 3),
]
