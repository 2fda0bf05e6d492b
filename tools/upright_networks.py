"""The networks of the widget on the first page: trained on upright digits, five epochs.

    EQTUTOR_DATA=… python tools/upright_networks.py eqtutor/widgets/upright.safetensors

Beside their weights, in half precision, the file holds test digits to turn and what was measured:
test accuracy by turn. Of each class it takes the first test digit that both networks read rightly
upright, and the p4-CNN at every angle.
"""
import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save
from torch import Tensor, nn

from eqtutor.demo import Data, accuracy_table, run_demo, turn_digits
from eqtutor.files import write_atomic
from eqtutor.train import mnist

SEED, EPOCHS = 0, 5
CLASSES = 7, 4, 2, 5, 3


def flat(net:nn.Module)->Tensor:
    "All weights and statistics in the order of `state_dict`, in half precision."
    values = [t.flatten() for t in net.state_dict().values() if t.is_floating_point()]
    return torch.cat(values).half()


@torch.no_grad()
def reads(net:nn.Module, x:Tensor, y:Tensor)->Tensor:
    "Which digits a network reads rightly."
    return net(x).argmax(1) == y


def chosen(nets:dict[str, nn.Module])->Tensor:
    "Test digits by the rule above, uint8 `(n, 28, 28)`."
    test = mnist('test')
    x, y = (t[:500] for t in test.tensors)
    good = torch.stack([reads(net, x, y) for net in nets.values()]).all(0)
    for degrees in range(5, 90, 5): good &= reads(nets['p4-CNN'], turn_digits(x, degrees), y)
    first = [int((good & (y == c)).nonzero()[0]) for c in CLASSES]
    pixels = x[first, 0]*test.std + test.mean
    return (255*pixels).round().clamp(0, 255).byte()


def main(out:str)->None:
    result, nets, _ = run_demo(SEED, EPOCHS, Data.mnist)
    print(accuracy_table(result))
    train = mnist('train')
    about = dict(accuracy=result.accuracy, train=len(train), epochs=EPOCHS, classes=CLASSES,
                 mean=train.mean.tolist(), std=train.std.tolist())
    tensors = {name: flat(net) for name, net in nets.items()} | {'pictures': chosen(nets)}
    write_atomic(Path(out), save(tensors, {'about': json.dumps(about)}))


if __name__ == '__main__': main(*sys.argv[1:])
