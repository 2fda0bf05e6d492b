"Paint on the panels of a feature map or a filter, and see what the group makes of them."
# Plain module: edited by hand, no notebook exports it.

from torch import Tensor

from ..groups import Group, get_group
from .page import Widget, live_page


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

    def html(self)->str:
        H = self.group
        names = [H.describe(h) for h in H.elements]
        panels, size = self.values.shape[:2]
        group = dict(name=H.name, matrices=H.matrices.tolist(), mul=H.mul.tolist())
        spec = dict(group=group, panels=panels, size=size, names=names,
                    values=self.values.flatten().tolist())
        return live_page('paint', spec, title=self.title, what=self.what, names=names[1:])
