"""Paint on the panels of a feature map or a filter, and see what the group makes of them."""
# Plain module: edited by hand, no notebook exports it.
import hashlib
import json

import torch
from torch import Tensor

from ..actions import act
from ..groups import Group, get_group
from .page import TEMPLATES, Widget


class PaintAndMove(Widget):
    "Panels `(|H|, k, k)` to paint on, in the page, and the same moved by each group element."
    def __init__(self,
        panels:Tensor,         # `(|H|, k, k)`, or `(1, k, k)` of an image; what is not 0 is dark
        group:Group|str,       # of the grid
        what:str='panels',     # what they are called, in the plural
        title:str='Paint, and see where it goes',
    ):
        self.group, self.what, self.title = get_group(group), what, title
        shape = tuple(panels.shape)
        fits = panels.ndim == 3 and shape[0] in (1, len(self.group)) and shape[1] == shape[2]
        if not fits or not self.group.is_grid:
            raise ValueError(f'expected (|H|, k, k) or (1, k, k) and a group of the grid, |H| = '
                             f'{len(self.group)}, got shape {shape} and {self.group.name}')
        self.values = (panels != 0).int()
        self.labels = [self.group.describe(h) for h in self.group.elements]

    def sources(self,
        h:int, # group element
    )->Tensor: # as the panels
        "For each place of the moved panels, the number of the place that its value comes from."
        places = torch.arange(self.values.numel()).view(1, 1, *self.values.shape)
        if len(self.values) == 1: return act(self.group, h, places[:, 0])[0]
        return act(self.group, h, places)[0, 0]

    def html(self)->str:
        "The page's face: a script paints and moves."
        panels, size = self.values.shape[:2]
        sources = [self.sources(h).flatten().tolist() for h in self.group.elements[1:]]
        painted = self.values.flatten().nonzero()
        cursor = int(painted[0]) if len(painted) else 0
        data = {'from': sources, 'values': self.values.flatten().tolist(), 'cursor': cursor,
                'panels': panels, 'size': size, 'labels': self.labels[1:]}
        name = hashlib.sha256((self.title + json.dumps(data)).encode()).hexdigest()[:12]
        names = self.labels if panels > 1 else [self.what]
        return TEMPLATES.get_template('paint.html').render(
            id=f'eqtutor-{name}', title=self.title, what=self.what, names=names,
            labels=self.labels[1:], data=data)

    def frame(self, position:int)->str:
        "The page is one; it has no positions."
        return self.html()

    def live(self):
        "The same page beside a kernel."
        from IPython.display import HTML
        return HTML(self.html())

    def _repr_mimebundle_(self, include=None, exclude=None):
        return {'text/plain': f'PaintAndMove: {self.title}', 'text/html': self.html()}
