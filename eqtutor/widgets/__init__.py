"""Turn the input, watch the features permute: live beside a kernel, and on a page without one."""
# Plain module: edited by hand, no notebook exports it.

from .attention import (
    AffineFilters,
    AttentionMap,
    four_encodings,
    looking_ahead,
    whom_it_hears,
)
from .cayley import CayleyExplorer
from .page import (
    OpenLinks,
    ShareOnce,
    Widget,
    moved_pixel,
    open_links,
    raw_html,
    share_once,
    whole_page,
)
from .paint import PaintAndMove
from .turn import (
    TurnThePicture,
    as_pictures,
    broken_twin,
    demo_page,
    three_layers,
    turn_a_digit,
    upright_networks,
    which_layer,
)

__all__ = ['AffineFilters', 'AttentionMap', 'CayleyExplorer', 'OpenLinks', 'PaintAndMove',
           'ShareOnce', 'TurnThePicture', 'Widget', 'as_pictures', 'broken_twin', 'demo_page',
           'four_encodings', 'looking_ahead', 'moved_pixel', 'open_links', 'raw_html',
           'share_once', 'three_layers', 'turn_a_digit', 'upright_networks', 'which_layer',
           'whole_page', 'whom_it_hears']
