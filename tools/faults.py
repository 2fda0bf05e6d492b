"""Faults at random: what a training run and the command do when they are killed, and more.

    python tools/faults.py [--loop 200] [--command 20] [--full 20] [--readonly 20] [--damaged 200]

Each fault is tried so often. A run that was killed (`kill -9`, one to three times) goes on and must
end as the run that nothing happened to: weights bit for bit, and the same history. On a full disk
and in a read-only folder it must end with an error and leave what was saved whole. A damaged
checkpoint must be refused. At the end stands a count; the exit code is 1 if anything went wrong.
"""
import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

import torch
from torch import nn

from eqtutor.nn.convolution import GroupConv2d, LiftingConv2d
from eqtutor.nn.layers import GroupBatchNorm2d, GroupPool
from eqtutor.train import (
    CHECKPOINT,
    LOG,
    TensorLoader,
    digits,
    fit,
    read_checkpoint,
    seed_everything,
)

EPOCHS, REFUSED, NOBODY = 4, 3, 65534


@dataclass
class Count:
    "How often a fault was tried, and what went wrong."
    fault:str
    tried:int=0
    wrong:list[str]=field(default_factory=list)

    def __str__(self)->str:
        return f'{self.fault:10} {self.tried:5} tried, {len(self.wrong)} wrong'


def run(out:Path, resume:bool)->None:
    "A short run, with everything that remembers: batch norm, dropout, momentum, an average."
    seed_everything(1)
    net = nn.Sequential(
        LiftingConv2d(1, 3, 5, 'p4'), GroupBatchNorm2d(3), nn.ReLU(), nn.MaxPool3d((1, 3, 3)),
        nn.Dropout(.2), GroupConv2d(3, 10, 5, 'p4'), GroupPool(), nn.AdaptiveMaxPool2d(1),
        nn.Flatten())
    train = TensorLoader(digits('valid'), 50, shuffle=True, seed=4)
    fit(net, train, None, EPOCHS, optimizer='nesterov', schedule='cosine', lr=.02, ema=.9,
        bar=False, out=out, resume=resume)


def apart(work:Callable[[], None], delay:float|None=None)->int:
    "Do it in a fork, which is killed after so many seconds; its exit code, or minus the signal."
    pid = os.fork()
    if not pid:
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (1, 2): os.dup2(null, fd)
        try:
            work()
        except (ValueError, OSError, RuntimeError):   # with a message, as promised
            os._exit(REFUSED)
        except BaseException:
            os._exit(4)
        os._exit(0)
    if delay is not None:
        time.sleep(delay)
        os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def ending(out:Path)->tuple[dict, list]:
    "The weights and all that is saved beside them, and the history without times."
    tensors, about = read_checkpoint(out/CHECKPOINT)
    return tensors, [{k: v for k, v in epoch.items() if 'seconds' not in k}
                     for epoch in about['history']]


def same(a:tuple[dict, list], b:tuple[dict, list])->bool:
    "Bit for bit?"
    return a[1] == b[1] and a[0].keys() == b[0].keys() and all(
        torch.equal(v, b[0][k]) for k, v in a[0].items())


@dataclass
class Straight:
    "The run that nothing happened to."
    out:Path
    seconds:float
    end:tuple[dict, list]

    @classmethod
    def made(cls, folder:Path)->'Straight':
        "Run it."
        start = time.monotonic()
        assert apart(lambda: run(folder, False)) == 0
        return cls(folder, time.monotonic() - start, ending(folder))


# --- the faults: each says what went wrong, '' if nothing did

def killed_loop(out:Path, draw:random.Random, straight:Straight)->str:
    "Killed one to three times at any moment, then left alone."
    for delay in [draw.uniform(0, straight.seconds) for _ in range(draw.randint(1, 3))] + [None]:
        code = apart(lambda: run(out, (out/CHECKPOINT).exists()), delay)
        if code not in (0, -signal.SIGKILL): return f'exit code {code}'
        if code == 0: break
    return '' if same(ending(out), straight.end) else 'another end'


def command(folder:Path, delay:float|None=None)->int:
    "`eqtutor train`, killed after so many seconds: its exit code."
    resume = ['--resume'] if list(folder.rglob(CHECKPOINT)) else []
    words = ['train', '--network', 'z2-cnn', '--data', 'digits', '--images', '60', '--epochs', '3',
             '--out', str(folder/'results'), '--runs', str(folder/'runs'), *resume]
    quiet = dict.fromkeys(('stdout', 'stderr'), subprocess.DEVNULL)
    process = subprocess.Popen([sys.executable, '-c', 'from eqtutor.cli import app; app()', *words],
                               **quiet)
    try:
        return process.wait(delay)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def killed_command(out:Path, draw:random.Random, straight:Straight)->str:
    "The same of `eqtutor train`; the straight run is made once beside it."
    whole = straight.out.parent/'command'
    start = time.monotonic()
    if not whole.exists() and command(whole): return 'the straight command fails'
    stamp = whole/'seconds'
    if not stamp.exists(): stamp.write_text(str(time.monotonic() - start))
    for delay in (draw.uniform(.5, 1)*float(stamp.read_text()), None):
        code = command(out, delay)
        if code not in (0, -signal.SIGKILL): return f'exit code {code}'
        if code == 0: break
    ends = [ending(next(folder.rglob(CHECKPOINT)).parent) for folder in (out, whole)]
    return '' if same(*ends) and list((out/'results').rglob('*.json')) else 'another end'


def full_disk(out:Path, draw:random.Random, straight:Straight)->str:
    "From some moment on no file may grow beyond some bytes: an error, and the old state whole."
    from resource import RLIMIT_FSIZE, setrlimit
    stopped_after_an_epoch(out, straight)
    before, most = (out/CHECKPOINT).read_bytes(), draw.randrange((out/CHECKPOINT).stat().st_size)
    def full()->None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        setrlimit(RLIMIT_FSIZE, (most, most))
        run(out, True)
    if (code := apart(full)) != REFUSED: return f'exit code {code}'
    if (out/CHECKPOINT).read_bytes() != before: return 'the state has changed'
    code = apart(lambda: run(out, True))
    return '' if code == 0 and same(ending(out), straight.end) else f'does not go on ({code})'


def read_only(out:Path, draw:random.Random, straight:Straight)->str:
    "A folder that may be read alone, by somebody who is not root."
    stopped_after_an_epoch(out, straight)
    before = {p: p.read_bytes() for p in out.iterdir()}
    out.chmod(0o555)
    def as_somebody()->None:
        if os.getuid() == 0: os.setuid(NOBODY)
        run(out, draw.random() < .9)
    code = apart(as_somebody)
    out.chmod(0o755)
    if code != REFUSED: return f'exit code {code}'
    return '' if {p: p.read_bytes() for p in out.iterdir()} == before else 'a file has changed'


def damaged(out:Path, draw:random.Random, straight:Straight)->str:
    "A checkpoint with a wrong bit, cut off, empty, or longer than it was: refused, untouched."
    shutil.copytree(straight.out, out)
    file, data = out/CHECKPOINT, bytearray((out/CHECKPOINT).read_bytes())
    how = draw.choice(('bit', 'bit', 'cut', 'empty', 'longer'))
    if how == 'bit': data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    if how == 'cut': del data[draw.randrange(len(data)):]
    if how == 'empty': data.clear()
    if how == 'longer': data += draw.randbytes(9)
    file.write_bytes(data)
    code = apart(lambda: run(out, True))
    if code != REFUSED: return f'{how}: exit code {code}'
    return '' if file.read_bytes() == data else f'{how}: the file has changed'


def stopped_after_an_epoch(out:Path, straight:Straight)->None:
    "A run that was killed when something had been saved, and not all."
    while True:
        shutil.rmtree(out, ignore_errors=True)
        pid = os.fork()
        if not pid:
            try: run(out, False)
            finally: os._exit(0)
        while not (out/LOG).exists(): time.sleep(.002)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        if (out/CHECKPOINT).exists() and len(ending(out)[1]) < EPOCHS: return


FAULTS = {'loop': (killed_loop, 200), 'command': (killed_command, 20), 'full': (full_disk, 20),
          'readonly': (read_only, 20), 'damaged': (damaged, 200)}


def inject(times:dict[str, int], seed:int)->list[Count]:
    "Each fault so often; what went wrong."
    torch.set_num_threads(1)
    # once, for all forks: one that gives up its rights may not be able to read a library
    for library in 'accelerate', 'filelock', 'torch._dynamo': import_module(library)
    digits('valid')
    draw, counts = random.Random(seed), []
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        straight = Straight.made(Path(place)/'straight')
        for fault, n in times.items():
            counts.append(count := Count(fault))
            for i in range(n):
                out = Path(place)/f'{fault}-{i}'
                problem = FAULTS[fault][0](out, draw, straight)
                count.tried += 1
                if problem: count.wrong.append(f'{fault} {i}: {problem}')
                shutil.rmtree(out, ignore_errors=True)
    return counts


if __name__ == '__main__':
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    for fault, (_, often) in FAULTS.items():
        parser.add_argument(f'--{fault}', type=int, default=often)
    parser.add_argument('--seed', type=int, default=0)
    asked = vars(parser.parse_args())
    seed = asked.pop('seed')
    counts = inject(asked, seed)
    for count in counts: print(count, *count.wrong, sep='\n  ')
    sys.exit(any(count.wrong for count in counts))
