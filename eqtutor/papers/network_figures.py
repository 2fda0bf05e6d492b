"What chapters 21b to 24b show: windows of attention, costs, printed errors, stored runs."
# Plain module: edited by hand, no notebook exports it.
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from torch import Tensor

from ..files import results_folder

BLUE, ORANGE, GREY = '#0072b2', '#d55e00', '#555555'
SIDES = [3, 5, 7, 9, 11, 15, 19, 23, 28]   # of windows, as they stand under an axis


def stored(
    name:str, # of a file in the folder of results, without its ending
)->Any:
    "A run or a benchmark, or None where there is no such file."
    path = results_folder()/f'{name}.json'
    return json.loads(path.read_text(encoding='utf-8')) if path.exists() else None


def timings(
    name:str, # as for `stored`, of a benchmark
)->dict[str, dict[str, Any]]:
    "Its rows, by name; none where it is not at hand."
    record = stored(name) or dict(tables={})
    return {row['name']: row for rows in record['tables'].values() for row in rows}


def write_table(ax:Axes, numbers:Tensor, write:Callable[[float], str], **colors)->None:
    "A table of numbers, written into its cells."
    ax.imshow(numbers, **colors)
    for (i, j), number in zip(np.ndindex(*numbers.shape), numbers.flatten().tolist()):
        ax.text(j, i, write(number), ha='center', va='center', size=9)


def draw_windows(
    digit:Tensor,                            # `(h, w)`
    kernel:Tensor,                           # `(3, 3)`
    pixels:Sequence[tuple[int, int]],        # row and column of each
    weights:Sequence[tuple[Tensor, Tensor]], # at each pixel: `(3, 3)` and `(5, 5)`, per cent
)->None:
    "A row for each pixel: its two windows, the kernel, attention of 3×3 and of 5×5."
    fig, axes = plt.subplots(len(pixels), 4, figsize=(7.4, 4), layout='constrained')
    for line, (y, x), attention in zip(axes, pixels, weights):
        line[0].imshow(digit, cmap='Greys')
        line[0].plot(x, y, '.', color=ORANGE)
        for k in (3, 5):
            corner = x - k/2, y - k/2
            line[0].add_patch(plt.Rectangle(corner, k, k, fill=False, ec=ORANGE, lw=1.5))
        write_table(line[1], kernel, '{:.1f}'.format, cmap='PuOr', vmin=-5, vmax=5)
        for ax, table in zip(line[2:], attention):
            write_table(ax, table, '{:.0f}'.format, cmap='Greys', vmin=0, vmax=150)
        for ax in line: ax.set(xticks=[], yticks=[])
    titles = 'a pixel, two windows', 'kernel, 3×3', 'attention, 3×3', 'attention, 5×5'
    for ax, title in zip(axes[0], titles): ax.set_title(title)


def side_axis(ax:Axes)->None:
    "An axis of windows, from 3 to the whole image."
    ax.set(xlabel='side of the window')
    ax.set_xticks(SIDES, map(str, SIDES), size=9)
    ax.minorticks_off()


def draw_window_costs(
    sides:Sequence[int],
    attention:Sequence[int],   # parameters
    convolution:Sequence[int], # parameters; not of the last side
    billions:Sequence[float],  # products of attention
)->None:
    "Parameters of two layers, and the work of attention, against the side of the window."
    fig, (left, right) = plt.subplots(1, 2, figsize=(7.2, 3), layout='constrained')
    left.loglog(sides, attention, 'o-', label='attention')
    left.loglog(sides[:-1], convolution, 's--', label='convolution')
    left.set(ylabel='parameters', title='one layer')
    left.legend()
    right.loglog(sides, billions, 'o-')
    right.set(ylabel='products, in billions', title='all six attention layers')
    right.set_yticks([.1, .2, .5, 1, 2, 5], ['0.1', '0.2', '0.5', '1', '2', '5'])
    for ax in (left, right): side_axis(ax)


def draw_accuracies(
    sides:Sequence[int],
    panels:Mapping[str, Sequence[float]], # title to accuracies, per cent
)->None:
    "Accuracies against the side of the window, a panel each."
    fig, axes = plt.subplots(1, len(panels), figsize=(7.2, 2.7), layout='constrained')
    for ax, (title, accuracies) in zip(axes, panels.items()):
        ax.semilogx(sides, accuracies, 'o-')
        ax.set(title=title, ylabel='accuracy, %')
        side_axis(ax)


def draw_shares(
    panels:Mapping[str, Tensor],      # name to picture; the first is the input
    shares:Sequence[Sequence[float]], # parts of parameters and of multiplications, per cent
)->None:
    "Pictures on their way through a network, and under each layer its part of the cost."
    fig, axes = plt.subplots(2, len(panels), figsize=(7.4, 2.5), layout='constrained')
    for ax, (name, pic) in zip(axes[0], panels.items()):
        ax.imshow(pic, cmap='Greys')
        ax.set(xticks=[], yticks=[])
        ax.set_title(f'{name}\n{len(pic)}×{len(pic)}', size=10)
    for ax, *heights in zip(axes[1, 1:], *shares):
        ax.set_ylim(0, 70)
        bars = ax.bar((0, 1), heights, color=(BLUE, ORANGE), hatch=('', '//'), ec='w')
        ax.bar_label(bars, fmt='%.0f', size=9)
    axes[1, 0].legend(bars.patches, ('parameters, %', 'multiplications, %'), loc='center')
    for ax in axes[1]: ax.axis('off')


Points = Mapping[str, tuple[float, float]]   # label to thousands of parameters and error

def draw_errors(
    others:Points,
    e4:Points,
    changed:Points,                          # E4-Net with one change
    labels:Mapping[str, str],                # where a point has another label, or none
    beside:Mapping[str, tuple[float, float]], # where the label does not stand at the right
)->None:
    "Test errors against parameters, each network with its name."
    fig, ax = plt.subplots(figsize=(7, 3.8), layout='constrained')
    styles = (others, 's', ORANGE, ORANGE), (e4, 'o', BLUE, BLUE), (changed, 'o', 'w', BLUE)
    for points, mark, inside, edge in styles:
        ax.loglog(*zip(*points.values()), mark, mfc=inside, mec=edge, ms=7)
        for label, point in points.items():
            ax.annotate(labels.get(label, label), point, beside.get(label, (7, 3)),
                        textcoords='offset points', size=9)
    ax.set(xlabel='parameters, thousands', ylabel='test error, %', xlim=(8.5, 170),
           ylim=(1.05, 4.6))
    ax.set_xticks([10, 20, 40, 80], ['10', '20', '40', '80'])
    ax.set_yticks([1.2, 1.5, 2, 3, 4], ['1.2', '1.5', '2', '3', '4'])
    ax.minorticks_off()


def draw_runs(
    runs:Sequence[tuple[str, dict, float]], # network, stored run, time of one of its epochs
)->None:
    "Validation errors against time, and the test error where a run ends."
    fig, ax = plt.subplots(figsize=(6, 3), layout='constrained')
    styles, named = {'p4-CNN': ('s', ORANGE), 'E4-Net': ('o', BLUE)}, set[str]()
    for name, run, an_epoch in runs:
        mark, colour = styles[name]
        spent = [an_epoch*(i + 1) for i in range(len(run['history']))]
        errors = [100 - 100*epoch['valid_accuracy'] for epoch in run['history']]
        ax.loglog(spent, errors, color=colour, lw=1, alpha=.6)
        end = spent[-1], 100 - 100*run['test']['accuracy']
        ax.loglog(*end, mark, color=colour, label=None if name in named else name)
        named.add(name)
        apart = (-14, -15) if len(spent) in (12, 20) else (6, 6)    # beside the lines
        ax.annotate(f'{len(spent)} epochs', end, apart, textcoords='offset points')
    ax.set(xlabel='time, in epochs of the p4-CNN', ylabel='error, %', xlim=(.9, 1200))
    ax.set_yticks([1.5, 2.5, 5, 10, 20, 40, 80], ['1.5', '2.5', '5', '10', '20', '40', '80'])
    ax.set_xticks([1, 3, 10, 30, 100, 300], ['1', '3', '10', '30', '100', '300'])
    ax.minorticks_off()
    ax.legend()


def draw_data(
    means:Mapping[str, Mapping[int, float]], # network to error by training digits
    single:float|None=None,                  # error of E4-Net with all digits
)->None:
    "Test errors of two networks against the training digits, and one of E4-Net."
    fig, ax = plt.subplots(figsize=(5.5, 2.8), layout='constrained')
    for (label, mean), style, colour in zip(means.items(), ('^--', 's-'), (GREY, ORANGE)):
        ax.loglog(mean.keys(), mean.values(), style, color=colour, label=label)
    if single:
        ax.loglog(10_000, single, 'o', mfc='w', mec=BLUE, ms=8, label='E4-Net, more steps')
    ax.set(xlabel='training digits', ylabel='test error, %')
    ax.set_xticks([1000, 3000, 10_000], ['1,000', '3,000', '10,000'])
    ax.set_yticks([4, 7, 10, 14], ['4', '7', '10', '14'])
    ax.legend()
    ax.minorticks_off()


def table_of_published_runs(
    rows:list[dict[str, Any]], # of results/published-weights.json
    mark:str='',               # of that record, beside what was measured here
)->str:
    "Runs that P1's authors published: errors after each epoch, and of the weights on our digits."
    lines = ['| published run | last 20 epochs, mean ± deviation | last epoch | best epoch '
             f'| best epoch, on our digits{mark} |', '|---|---:|---:|---:|---:|']
    for row in rows:
        there = row['original']
        late = f'{there["late"]:.2f} ± {there["late_deviation"]:.2f}'
        lines.append(f'| {row["name"]} | {late} | {there["last"]:.2f} | {there["best"]:.2f} '
                     f'| {row["rebuilt"]:.2f} |')
    return '\n'.join(lines)


def mean_of(
    errors:Tensor, # of runs, per cent
)->str:
    "The mean, with the deviation where there is more than one run."
    deviation = f' ± {errors.std():.2f}' if len(errors) > 1 else ''
    return f'{errors.mean():.2f}{deviation}'


def run_table(
    rows:Sequence[str], # lines of the table
    *more:str,          # columns after the error of each seed and the mean
)->str:
    "A markdown table of networks and the errors of their runs."
    head = 'network', 'test error of each seed, %', 'mean ± deviation', *more
    return '\n'.join([f"| {' | '.join(head)} |", '|---|' + '---:|'*(len(head) - 1), *rows])
