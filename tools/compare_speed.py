"""Training steps of two checkouts side by side: is the new code as fast as the old one?

    python tools/compare_speed.py OLD_CHECKOUT NEW_CHECKOUT [--repeats 15] [--out FILE]

Each checkout runs in processes of its own, the old one in two of them; they take turns, step by
step. A network's ratio new / old belongs beside old / old, which is the noise of the machine.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

NETWORKS = 'z2-cnn', 'p4-cnn', 'alpha-F-p4-cnn', 'p4-e4-net', 'gsa-z2', 'gsa-r4'
BATCH = 16

# what a process does: a network's name on a line of stdin, seconds of one step on a line of stdout
WORKER = '''
import sys, time, torch
import eqtutor.models as models
try: from eqtutor.measure import training_step
except ImportError: from eqtutor.cost import training_step   # where it was
nets = {}
x = torch.randn(BATCH, 1, 28, 28, generator=torch.Generator().manual_seed(0))
for line in sys.stdin:
    name = line.strip()
    if name not in nets:
        torch.manual_seed(0)
        nets[name] = models.build_model(name)
        training_step(nets[name], x)
    began = time.perf_counter()
    training_step(nets[name], x)
    print(time.perf_counter() - began, flush=True)
'''.replace('BATCH', str(BATCH))


def worker(checkout:Path)->subprocess.Popen:
    "A process that imports eqtutor from a checkout."
    env = os.environ | {'PYTHONPATH': str(checkout.resolve())}
    return subprocess.Popen([sys.executable, '-c', WORKER], cwd=checkout, env=env, text=True,
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def step(process:subprocess.Popen, name:str)->float:
    process.stdin.write(name + '\n')
    process.stdin.flush()
    return float(process.stdout.readline())


def compare(old:Path, new:Path, repeats:int)->list[dict]:
    "One row a network: medians of new / old and of old / old, which took turns."
    processes = dict(old=worker(old), new=worker(new), again=worker(old))
    rows = []
    for name in NETWORKS:
        rounds = repeats if name != 'gsa-r4' else max(3, repeats//5)
        turns = [{who: step(p, name) for who, p in processes.items()} for _ in range(rounds)]
        medians = {who: statistics.median(t[who] for t in turns) for who in processes}
        noise = medians['again']/medians['old']
        rows.append(dict(network=name, new_over_old=medians['new']/medians['old'],
                         old_over_old=noise, seconds=medians['old'], repeats=rounds))
        print(f'{name:16} new/old {rows[-1]["new_over_old"]:.3f}   old/old {noise:.3f}', flush=True)
    for process in processes.values(): process.kill()
    return rows


def main()->None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('old', type=Path)
    parser.add_argument('new', type=Path)
    parser.add_argument('--repeats', type=int, default=15)
    parser.add_argument('--out', type=Path)
    options = parser.parse_args()
    rows = compare(options.old, options.new, options.repeats)
    if options.out: options.out.write_text(json.dumps(rows, indent=1) + '\n', encoding='utf-8')


if __name__ == '__main__': main()
