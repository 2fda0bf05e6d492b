"The theme of figures: read on white and on black, at the width of a page, by every eye."
import io
import re
from itertools import combinations

import numpy as np
import pytest
import torch
from matplotlib import rc_params_from_file
from matplotlib.colors import to_hex, to_rgb
from matplotlib.text import Text
from pages import ROOT
from PIL import Image

from eqtutor import plot

THEME = rc_params_from_file(ROOT/'eqtutor/figures.mplstyle', use_default_template=False)
STYLES = (ROOT/'nbs/styles.css').read_text(encoding='utf-8')
MAP = torch.arange(8*36.).view(8, 6, 6)
FIGURES = {
    'feature map': lambda: plot.plot_feature_map(MAP, 'p4m'),
    'ring': lambda: plot.plot_ring(MAP, 'p4m', MAP[0]/300, move=1),
    'kernels': lambda: plot.plot_kernels(MAP[:, :3, :3] - 99, 'p4m'),
    'table': lambda: plot.plot_cayley_table('p4m'),
    'graph': lambda: plot.plot_cayley_graph('p4m'),
    'arrows': lambda: plot.plot_orientation(MAP, 'p4m'),
    'attention': lambda: plot.plot_attention(MAP, MAP[0]/300, query=(2, 2)),
}


def linear(colour):
    c = np.array(to_rgb(colour))
    return np.where(c <= .04045, c/12.92, ((c + .055)/1.055)**2.4)


def contrast(a, b):
    "Of two colours, as WCAG defines it."
    high, low = sorted((linear(c) @ [.2126, .7152, .0722] for c in (a, b)), reverse=True)
    return (high + .05)/(low + .05)


# Machado, Oliveira and Fernandes (2009), severity 1, for linear RGB
EYES = {
    'all cones': np.eye(3),
    'no red cones': [[.152286, 1.052583, -.204868], [.114503, .786281, .099216],
                     [-.003882, -.048116, 1.051998]],
    'no green cones': [[.367322, .860646, -.227968], [.280085, .672501, .047413],
                       [-.011820, .042940, .968881]],
    'no blue cones': [[1.255528, -.076749, -.178779], [-.078411, .930809, .147602],
                      [.004733, .691367, .303900]]}


def lab(rgb):
    "CIE L*a*b* of linear RGB."
    xyz = np.array([[.4124, .3576, .1805], [.2126, .7152, .0722], [.0193, .1192, .9505]])
    t = xyz @ np.clip(rgb, 0, 1)/[.9505, 1, 1.089]
    x, y, z = np.where(t > .008856, np.cbrt(t), 7.787*t + 16/116)
    return np.array([116*y - 16, 500*(x - y), 200*(y - z)])


def nearest(colours, eye):
    "The smallest distance of two of the colours, as an eye sees them."
    seen = [lab(np.array(EYES[eye]) @ linear(c)) for c in colours]
    return min(np.linalg.norm(a - b) for a, b in combinations(seen, 2))


def at_night(
    colour, # hexadecimal
):
    """A colour of a figure as the dark page shows it, by the filter in `before-body.html`: a curve
    for what is grey, a line for what is not."""
    filters = (ROOT/'nbs'/'before-body.html').read_text(encoding='utf-8')
    [curve], [line] = ({*re.findall(kind, filters)} for kind in (
        r'tableValues="(.*?)"', r'slope="(.*?)" intercept="(.*?)"'))
    values, (slope, intercept) = np.array(curve.split(), float), map(float, line)
    seen = red, green, blue = np.array(to_rgb(colour))
    far = abs(red - blue) + max(0, green - (red + blue)/2)   # from grey
    [steep] = {*re.findall(r'(\S+) \1 \1 0 0"', filters)}
    share = min(1, float(steep)*far)
    grey = np.interp(seen, np.linspace(0, 1, len(values)), values)
    return to_hex((1 - share)*grey + share*(slope*seen + intercept))


def test_the_ink_is_read_on_the_light_page_and_on_the_dark_one():
    light, dark = re.findall(r'--paper: (#\w+);', STYLES)[:2]
    for ground, shown in (light, to_hex), (dark, at_night):
        assert contrast(shown(plot.INK), ground) >= 4.5
        assert all(contrast(shown(pose), ground) >= 3 for pose in plot.POSES)
    assert contrast(at_night('white'), dark) < 10   # an empty panel is no lamp


@pytest.mark.parametrize('eye', EYES)
def test_poses_are_told_apart_by(eye): assert nearest(plot.POSES, eye) > 15


def test_colours_that_one_eye_takes_for_the_same_are_found():
    red_and_green = '#c0392b', '#5a8a00'
    assert nearest(red_and_green, 'all cones') > 60 > 15 > nearest(red_and_green, 'no green cones')


def test_the_style_says_what_plot_says():
    inks = {to_hex(value) for key, value in THEME.items()
            if re.fullmatch(r'text.color|axes.(label|title|edge)color|[xy]tick.color', key)}
    assert inks == {plot.INK} and THEME['image.cmap'] == plot.WEIGHTS
    assert THEME['figure.figsize'][0] == plot.WIDTH
    cycle = [(c['color'], c['linestyle']) for c in THEME['axes.prop_cycle']]
    assert [to_hex(c).upper() for c, _ in cycle] == [*plot.POSES]*2
    assert [line for _, line in cycle] == ['-']*4 + ['--']*4


@pytest.mark.parametrize('name', FIGURES)
def test_text_has_nine_points_at_the_width_of_a_page(name):
    fig = FIGURES[name]()
    fig.savefig(io.BytesIO())
    shrunk = min(1, plot.WIDTH/fig.get_figwidth())
    texts = [t for t in fig.findobj(Text) if t.get_text() and t.get_visible()]
    assert texts and min(t.get_fontsize() for t in texts)*shrunk >= 9
    assert fig.dpi == 96   # a point of the figure is a point of the page


@pytest.mark.parametrize('name', FIGURES)
def test_the_ground_is_transparent(name):
    image = Image.open(io.BytesIO(plot.png(FIGURES[name]())))
    assert image.mode == 'RGBA' and image.getpixel((0, 0))[3] == 0
