"""Frames a second of the widgets, as a person moves.

Run `python -m tests.widgets.frames_bench` from the root of a checkout, on an idle machine. A
frame is all that a movement of the pointer or of the ring asks for, drawing included; `--slower 4`
has the browser's processor pretend to be a phone's. Convolution is to make 20 frames a second,
attention 10. The last line is how fast the machine was meanwhile: on a busy one compare the frames
with each other alone.
"""
import argparse
import shutil
import tempfile
from pathlib import Path
from statistics import median

import torch
from playwright.sync_api import sync_playwright
from torch import nn

from eqtutor.models import build_model
from eqtutor.nn import GroupSelfAttention2d, LiftingSelfAttention2d
from eqtutor.train import load_weights
from eqtutor.widgets import (
    AttentionMap,
    TurnThePicture,
    three_layers,
    turn_a_digit,
    upright_networks,
    whole_page,
    whom_it_hears,
)

FRAMES = '''turning => {
  const { widget } = document.querySelector('.eqtutor-live');
  return Array.from({ length: 30 }, (_, i) => {
    const start = performance.now();
    widget.slow = false; // the maps, too
    widget.become(turning ? { turn: 3 * i + 1 } : { asks: [(5 * i) % widget.size, i % 11] });
    widget.show();
    return performance.now() - start;
  });
}'''


SPEED = '''() => {
  const [a, b] = [0, 1].map(k => Float64Array.from({ length: 1000 }, (_, i) => i + k));
  const start = performance.now();
  let sum = 0;
  for (let n = 0; n < 50_000; n++) for (let i = 0; i < 1000; i++) sum += a[i] * b[i];
  return sum > 0 && 50_000 / (performance.now() - start);
}'''
GOALS = dict(turn=20, attention=10)


def widgets():
    "Of the lessons' sizes."
    torch.manual_seed(0)
    yield '00: two networks', turn_a_digit(broken=False, simple=True)
    yield 'index: three', turn_a_digit()
    yield '05: three layers', three_layers()
    nets, pictures, about = upright_networks()
    two = {name: nets[name] for name in ('p4 network', 'plain network')}
    yield '13: the curve', TurnThePicture(
        two, pictures, mean=about['mean'], std=about['std'], face='answers',
        curves=dict.fromkeys(two, {0: .9, 360: .9}))
    lift = LiftingSelfAttention2d(1, 8, 'p4', 5, heads=4)
    three = {name: nn.Sequential(lift, GroupSelfAttention2d(8, 8, 'p4', 9, heads=4, encoding=name))
             for name in ('relative', 'target', 'printed')}
    nets = {name: load_weights(build_model(name), f'{name}-rotmnist').eval()
            for name in ('p4-e4-net', 'alpha-F-p4-cnn')}
    digit, scene = torch.rand(28, 28), torch.rand(3, 16, 16)
    yield '20: four encodings', whom_it_hears(scene)
    yield '23: three indices', AttentionMap(three, digit, layer='1')
    yield '24: E4', AttentionMap({'a': nets['p4-e4-net'], 'b': nets['p4-e4-net']}, digit)
    yield '21: α_F', AttentionMap(
        {'a': nets['alpha-F-p4-cnn'], 'b': nets['alpha-F-p4-cnn']}, digit, layer='layers.conv2')


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--slower', type=float, default=1, help='times, as a phone is')
    slower = parser.parse_args().slower
    program = shutil.which('chromium') or shutil.which('google-chrome')
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=program, args=['--no-sandbox'])
        for name, widget in widgets():
            page, file = browser.new_page(), Path(folder)/'page.html'
            file.write_text(whole_page(name, widget.html()), encoding='utf-8')
            page.goto(file.as_uri())
            session = page.context.new_cdp_session(page)
            session.send('Emulation.setCPUThrottlingRate', {'rate': slower})
            page.evaluate(FRAMES, False)
            kind = 'attention' if isinstance(widget, AttentionMap) else 'turn'
            rates = {what: 1000/median(page.evaluate(FRAMES, what == 'turning'))
                     for what in (['pointer'] if kind == 'attention' else []) + ['turning']}
            said = '   '.join(f'{what} {rate:5.0f}' for what, rate in rates.items())
            print(f'{name:20} {file.stat().st_size//1000:4} KB   {said} frames a second, '
                  f'wanted {GOALS[kind]}')
        print(f'{page.evaluate(SPEED):.0f} million products a second')
        browser.close()


if __name__ == '__main__': main()
