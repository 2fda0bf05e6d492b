"""Every layer of anybody's network and every operation between them, each tried by itself: who
breaks the symmetry, why, and what to put there; and the sizes on which nobody does."""
# Plain module: edited by hand, no notebook exports it.

from .layers import layer_report
from .layout import LAYOUTS
from .sizes import exact_sizes
from .text import LayerReport, Step

__all__ = ['LAYOUTS', 'LayerReport', 'Step', 'exact_sizes', 'layer_report']
