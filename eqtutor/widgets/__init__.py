"""Turn the input, watch the features permute: live beside a kernel, and on a page without one."""
# Plain module: edited by hand, no notebook exports it.

from .page import (CayleyExplorer, ClickAndTurn, EquivarianceMeter, FeatureView, KernelOrbit,
                   OpenLinks, PixelView, RotateAndPermute, ShareOnce, Widget, demo_page, html_table,
                   moved_pixel, open_links, raw_html, share_once, whole_page)
from .turn import TurnThePicture, turn_a_digit

__all__ = ['CayleyExplorer', 'ClickAndTurn', 'EquivarianceMeter', 'FeatureView', 'KernelOrbit',
           'OpenLinks', 'PixelView', 'RotateAndPermute', 'ShareOnce', 'TurnThePicture', 'Widget',
           'demo_page', 'html_table', 'moved_pixel', 'open_links', 'raw_html', 'share_once',
           'turn_a_digit', 'whole_page']
