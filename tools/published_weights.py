"""The weights that P1's authors published, on the course's rebuilt digits.

    git clone https://github.com/dwromero/att_gconvs
    python tools/published_weights.py --p1 att_gconvs --out results/published-weights.json

Beside them stands the history that lies with the weights: the error on the original test digits
after each epoch. The published code trains on 12,000 digits, and keeps the weights of the epoch
that is best on the test digits, whose error it calls its result. Its digits are stored column by
column and used so, mirrored in the diagonal; ours are mirrored here, too.
"""
import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from against_published import (
    NETWORKS,
    REPOSITORIES,
    Likeness,
    checked_commit,
    copy_weights,
    importable,
    unknown_layout,
)
from torch import Tensor, nn

from eqtutor.files import write_json
from eqtutor.train import environment, rotated_mnist

FOLDER = 'experiments/rot_mnist/saved/model_{}_optim_adam_lr_0.001_wd_0.0001_seed_0'
SAVED = {'p4-CNN': 'p4cnn', 'α_F-p4-CNN': 'f_att_p4cnn', 'α-p4-CNN': 'att_p4cnn'}
LATE = 20   # epochs at the end of a history
BATCH = 500


def their_history(folder:Path)->dict[str, Any]:
    "The test errors of their run, per cent, on the original digits."
    history = np.load(folder/'model_history.npy', allow_pickle=False)
    errors = 100 - 100*history[0]   # accuracy, loss, and both for training
    late = errors[-LATE:]
    return {'epochs': len(errors), 'best': float(errors.min()),
            'best_epoch': int(errors.argmin()) + 1, 'last': float(errors[-1]),
            'late': float(late.mean()), 'late_deviation': float(late.std(ddof=1))}


def with_their_weights(name:str, clone:Path, folder:Path)->nn.Module:
    "Our network, which computes what theirs does with the weights of that folder."
    like = NETWORKS[name].like
    assert isinstance(like, Likeness)
    with importable(clone): theirs = like.theirs()
    ours = like.ours()
    state = torch.load(folder/'model.pth', map_location='cpu', weights_only=True)
    try:
        theirs.load_state_dict(state)
        copy_weights(ours, theirs, like.translate)
    except (KeyError, RuntimeError) as error:
        raise unknown_layout(clone, 'P1', f'weights of {name}: {error}') from None
    return ours.eval()


def rebuilt_digits()->tuple[Tensor, Tensor]:
    "The test digits as the published code prepares them, `(50000, 1, 28, 28)`, and labels."
    (x, y), (of_train, _) = (rotated_mnist(split).tensors for split in ('test', 'train'))
    return ((x - of_train.mean())/of_train.std()).mT.contiguous(), y


@torch.no_grad()
def error(net:nn.Module, x:Tensor, y:Tensor)->float:
    "Per cent."
    pairs = zip(x.split(BATCH), y.split(BATCH))
    wrong = sum(int((net(images).argmax(1) != labels).sum()) for images, labels in pairs)
    return 100*wrong/len(y)


def row(name:str, clone:Path, digits:tuple[Tensor, Tensor])->dict[str, Any]:
    folder = clone/FOLDER.format(SAVED[name])
    if missing := [n for n in ('model.pth', 'model_history.npy') if not (folder/n).is_file()]:
        raise unknown_layout(clone, 'P1', f'no {missing[0]} in {folder.name}')
    return {'name': name, 'network': NETWORKS[name].ours, 'original': their_history(folder),
            'rebuilt': error(with_their_weights(name, clone, folder), *digits)}


def line(row:dict[str, Any])->str:
    there = row['original']
    return (f'{row["name"]:12} original digits: best {there["best"]:.2f} % of {there["epochs"]} '
            f'epochs, last {there["last"]:.2f}, last {LATE} {there["late"]:.2f} ± '
            f'{there["late_deviation"]:.2f}   rebuilt digits: {row["rebuilt"]:.2f} %')


def main(arguments:list[str]|None=None)->dict[str, Any]:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)
    source = REPOSITORIES['P1'].url
    parser.add_argument('--p1', type=Path, required=True, help=f'clone of {source}')
    parser.add_argument('--out', type=Path, help='the record')
    chosen = parser.parse_args(arguments)
    if not chosen.p1.is_dir():
        raise SystemExit(f'{chosen.p1} is not there. git clone {source}, then give its folder.')
    commit, digits, rows = checked_commit(chosen.p1, 'P1'), rebuilt_digits(), []
    for name in SAVED:
        rows.append(row(name, chosen.p1, digits))
        print(line(rows[-1]), flush=True)
    record = {'benchmark': 'published weights', **environment('cpu'),
              'repositories': {'P1': {'url': source, 'commit': commit}},
              'command': f'python tools/published_weights.py --p1 {chosen.p1.resolve().name} '
                         '--out results/published-weights.json',
              'tables': {'test error, %, on 50,000 rotated digits': rows}}
    if chosen.out: write_json(chosen.out, record)
    return record


if __name__ == '__main__': main()
