"Walk through a group: left multiplication by each element, on the map of its generators."
# Plain module: edited by hand, no notebook exports it.

from ..groups import Group, get_group
from ..plot import cayley_edges, ring_places
from .page import Widget, live_page


def _order_of(group:Group, g:int)->int:
    "The smallest k ≥ 1 with g multiplied by itself k times = e."
    k, power = 1, g
    while power: k, power = k + 1, int(group.mul[power, g])
    return k

class CayleyExplorer(Widget):
    "Left multiplication by each element: where it sends the group, and facts about it."
    def __init__(self,
        group:Group|str,
    ):
        self.group = group = get_group(group)
        self.title = f'The group {group.name}: multiply by g from the left'
        self.names = [group.describe(h) for h in group.elements]

    def facts(self, g:int)->str:
        "After how many steps it is back, its inverse, and what it commutes with, in words."
        H = self.group
        partners = [h for h in H.elements if H.mul[g, h] == H.mul[h, g]]
        some = ', '.join(map(str, partners))
        partners_ = 'every element' if len(partners) == len(H) else some
        n = _order_of(H, g)
        back = f'back at the start after {n} step{"s" if n > 1 else ""}'
        return (f'{back} · inverse {int(H.inv[g])} · '
                f'commutes with {partners_}')

    def html(self)->str:
        H = self.group
        edges = [dict(by=s, arrows=arrows, both=bool(H.mul[s, s] == 0))
                 for s, arrows in cayley_edges(H).items()]
        spec = dict(
            group=dict(name=H.name, matrices=H.matrices.tolist(), mul=H.mul.tolist()),
            names=self.names, facts=[self.facts(g) for g in H.elements], edges=edges,
            places=ring_places(H).tolist())
        return live_page('cayley', spec, title=self.title, last=len(H) - 1)
