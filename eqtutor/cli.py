"""The command `eqtutor`: each of its commands imports what it needs, so that help and version come
at once, and a class is graded beside a process that holds no torch."""
# Plain module: edited by hand, no notebook exports it.
from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from enum import StrEnum
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from . import __version__
from .files import writable_folder, write_atomic, write_json
from .names import MissingExtra, needs
from .train.settings import settings_as_options

if TYPE_CHECKING:   # what a command imports when it is called
    from torch import Tensor, nn

    from .demo import DemoResult
    from .models.registry import Model
    from .papers.protocol import Comparison, Measured
    from .report import LayerReport

ADVICE = (
    'Both networks saw upright digits only. The p4-CNN gives the same accuracy at 0°, '
    '90°, 180° and 270°: its layers turn and permute their feature maps, and the last '
    'step forgets the pose. Between these angles neither network promises anything. '
    'Turn the digit and watch the features.')

# `eqtutor --install-completion` teaches the shell
app = typer.Typer(no_args_is_help=True)

@app.callback(invoke_without_command=True)
def main(
    show_version:bool=typer.Option(False, '--version', help='Print the version.'),
)->None:
    "Equivariant networks: a course that is also a library. Begin with `eqtutor demo`."
    if show_version: typer.echo(f'eqtutor {__version__}')

@contextmanager
def explained(
    flags:dict[str, str]|None=None, # an argument's name, and the flag that was typed
)->Iterator[None]:
    "What is wrong with what was typed: a sentence and exit code 1, and no traceback."
    try: yield
    except (MissingExtra, ValueError, RuntimeError, OSError) as error:
        said = str(error)
        for name, flag in (flags or {}).items(): said = said.replace(name, flag)
        typer.secho(said, fg='red', err=True)
        raise typer.Exit(1) from None

def _new_file(path:Path)->Path:
    "A file that can be written to, or an error before any work."
    file = path.expanduser()
    if file.is_dir(): raise ValueError(f'{path} is a folder: expected a file to write.')
    writable_folder(file.parent)
    return file

class Data(StrEnum):
    "Where the digits of the demo come from."
    digits = 'digits'   # scikit-learn's 1,797, embedded: works offline
    mnist = 'mnist'     # 10,000 of MNIST, from EQTUTOR_DATA or downloaded

def save_demo(
    out:Path,      # a folder
    result:DemoResult,
    nets:dict[str, nn.Module],
    digit:Tensor,
)->None:
    "Write the picture, the page and the record of a demo."
    from .demo import draw_demo
    from .widgets import demo_page
    write_atomic(out/'demo.png', draw_demo(result, digit))
    text = demo_page(result.accuracy, nets, digit, ADVICE)
    write_atomic(out/'demo.html', text.encode())
    write_json(out/'demo.json', asdict(result))

DEMO = """\
Train a plain CNN and a p4-CNN of the same size on UPRIGHT digits, \
then test both on TURNED ones.

The p4-CNN shares each filter over four turns, so its answer cannot depend on quarter \
turns: look for four equal numbers in its row. The plain CNN has to guess.
It prints the accuracies and each layer's equivariance error, and writes a picture and \
a page in which the feature maps move (open it in any browser).
"""

@app.command(help=DEMO)
def demo(
    seed:int=typer.Option(
        0, help='Seed of weights, order and angles. The same seed gives the same table '
                'on the same machine.'),
    epochs:int=typer.Option(
        10, min=1, help='Passes over the training digits; 10 take one to four minutes on '
                        'two cores.'),
    out:Path=typer.Option(
        Path('eqtutor-demo'),
        help='Folder for demo.png, demo.html and demo.json; files of an earlier run '
             'are replaced.'),
    data:Data=typer.Option(
        Data.digits,
        help='digits: 1,797 embedded ones, no network needed. mnist: 10,000 of MNIST, '
             'from EQTUTOR_DATA or downloaded; some ten times slower.'),
)->None:
    "Train a plain CNN and a p4-CNN on upright digits, and test both on turned ones."
    with explained():
        from .demo import accuracy_table, error_table, run_demo
        folder = writable_folder(out.expanduser())
        result, nets, digit = run_demo(seed, epochs, data.value)
        save_demo(folder, result, nets, digit)
    typer.echo(f'\n{accuracy_table(result)}\n\n{error_table(result)}\n\n'
               f'Written to {folder}: demo.html (open it in a browser and turn the '
               'digit), demo.png, demo.json')

def models_table(
    rows:list[dict], # of `model_rows`
)->str:
    "Networks, their printed, exact and counted parameters, as text."
    lines = [f'{"network":36}{"data":11}{"paper":>9}{"exact":>12}{"ours":>12}'
             f'{"difference":>12}  source']
    for r in rows:
        lines.append(f'{r["name"]:36}{r["data"]:11}{r["paper"]:>9}{r["exact"]:>12,}'
                     f'{r["ours"]:>12,}{r["difference"]:>12,}  {r["source"]}')
    return '\n'.join(lines)

@app.command(help=(
    'List the networks: the paper\'s parameter count, the exact one, ours, and the '
    'difference.'))
def models(
    as_json:bool=typer.Option(False, '--json', help='Print the rows as JSON.'),
)->None:
    "The networks and their numbers of parameters: printed, exact, ours, difference."
    from .models.registry import model_rows
    rows = model_rows()
    typer.echo(json.dumps(rows, ensure_ascii=False) if as_json else models_table(rows))

def group_of(
    name:str, # of a network
)->str:
    "The first part of a network's name that is a group: p4 of alpha-F-p4-cnn."
    from .groups import GROUPS
    known = {g.lower(): g for g in GROUPS}
    return next(known[part] for part in name.lower().split('-') if part in known)

def _built(model:Model, weights:Path|str|None, init:Any=None)->nn.Module:
    "A network in float64, its weights from a file, or random and changed by `init`."
    import torch
    torch.manual_seed(0)
    return _with_weights(model.make(), weights, init).double().eval()

def _with_weights(net:nn.Module, weights:Path|str|None, init:Any=None)->nn.Module:
    "The network, its weights from a file; without one those it has, changed by `init`."
    if weights:
        from .train.checkpoints import load_weights
        return load_weights(net, weights)
    return init(net) if init else net

def _own_network(
    where:str, # file.py:make
)->nn.Module:
    "What a function (or class) of somebody's file makes."
    import torch
    path, _, name = where.rpartition(':')
    file = Path(path).expanduser()
    if not file.is_file():
        raise FileNotFoundError(f'There is no file {file}: expected file.py:make, '
                                f'got {where!r}')
    spec = spec_from_file_location(file.stem, file)
    module = module_from_spec(spec)        # type: ignore[arg-type]
    sys.path.insert(0, str(file.parent.resolve()))   # what it imports lies beside it
    try: spec.loader.exec_module(module)   # type: ignore[union-attr]
    finally: sys.path.pop(0)
    if not hasattr(module, name):
        raise ValueError(f'{file} has no {name!r}')
    torch.manual_seed(0)
    net = getattr(module, name)
    return net if isinstance(net, torch.nn.Module) else net()

def _network(network:str, weights:str|None, shape:str|None, init:Any=None)->tuple:
    "A network by name or of a file, in float64, and the sizes of a picture."
    from .models.registry import get_model
    if '.py:' in network:
        if not shape: raise ValueError('a network of your own needs --input 3,224,224')
        net = _with_weights(_own_network(network), weights, init)
    else:
        model = get_model(network)
        net = _built(model, weights, init)
        shape = shape or ','.join(map(str, model.input_shape))
    try: sizes = [int(n) for n in shape.split(',')]
    except ValueError:
        raise ValueError(f'--input is like 3,224,224, got {shape!r}') from None
    return net.double().eval(), sizes

def _suspect(network:str, weights:str|None, shape:str|None, group:str)->tuple:
    "The network to check, an input, and the group."
    import torch

    from .equivariance import perturb_
    from .models.registry import get_model
    if '.py:' in network and not (shape and group):
        raise ValueError('a network of your own needs --input 3,224,224 and '
                         '--group p4')
    net, sizes = _network(network, weights, shape, perturb_)
    group = group or group_of(get_model(network).name)
    return net, torch.randn(1, *sizes, dtype=torch.float64), group

@app.command(help=(
    'Find out which layers of a network break the symmetry, in float64, with every '
    'weight moved at random or as trained: each is tried by itself, and so is what '
    'stands between them.'))
def check(
    network:str=typer.Argument(
        help='A name of `eqtutor models`, for instance p4-cnn; or file.py:make, where '
             'make() builds a network of your own.'),
    group:str=typer.Option(
        '', help='The group to test; that of the name (p4 of p4-cnn) if left out.'),
    weights:str=typer.Option(
        None, help='A checkpoint or safetensors file, or the name of trained weights '
                   'of the package; random weights if left out.'),
    shape:str=typer.Option(
        None, '--input', help='Channels, height and width of a picture: 3,224,224.  '
                              '[default: as the network was made for]'),
    layout:str=typer.Option(
        None, help='Of the input, where its shape does not say it: flattened is '
                   '(b, c·|H|, h, w).'),
    margin:float=typer.Option(
        None, help='Judge turns off the pixel grid too, inside the largest disc less '
                   'so many pixels.'),
    as_json:bool=typer.Option(
        False, '--json',
        help='Print each layer\'s errors, one a group element, and who is at fault, '
             'as JSON.'),
)->None:
    "Who breaks the symmetry of a network; exit code 1 if anybody does."
    with explained():
        from .report import layer_report
        net, x, group = _suspect(network, weights, shape, group)
        report = layer_report(net, x, group, layout=layout, margin=margin)
    typer.echo(json.dumps(_as_record(report)) if as_json else str(report))
    praise, blame = _verdict(network, report)
    if blame: typer.secho(blame, fg='red', err=True)
    elif not as_json: typer.echo(praise)
    if blame: raise typer.Exit(1)

def _as_record(report:LayerReport)->dict[str, Any]:
    "Errors by layer, and the offenders."
    faults = [dict(name=s.name, layer=s.cls, where=s.where, reason=s.reason,
                   remedy=s.remedy) for s in report.offenders]
    return dict(errors={s.name: s.errors for s in report.steps}, offenders=faults,
                first_broken=report.first_broken)

def _verdict(network:str, report:LayerReport)->tuple[str, str]:
    "What to say of a network's report: praise, or blame; the other is empty."
    group = report.group.name
    if len(report.judged) < min(2, len(report.group)):
        return '', (f'{network}: no turn of {group} keeps the pixel grid, and no '
                    '--margin was given. Nothing is claimed.')
    if report.first_broken:
        return '', (f'{network} is not equivariant to {group}: '
                    f'{report.first_broken} breaks the symmetry first.')
    unknown = [name for name, _, kind, _ in report.rows if kind == 'unknown']
    if unknown and report.rows[-1][0] == unknown[-1]:
        return '', (f'{network}: {len(unknown)} of {len(report.rows)} layers, the last '
                    f'one among them, could not be compared under {group}. '
                    'Nothing is claimed.')
    praise = f'{network} is equivariant to {group} in every layer'
    if not unknown: return praise + '.', ''
    return f'{praise} that can be compared ({len(unknown)} cannot).', ''

@app.command(help=(
    'Write a network as plain torch, with nothing of this library in it: net.pt2 '
    '(torch.export), net.onnx, or its weights as net.safetensors.'))
def export(
    network:str=typer.Argument(
        help='A name of `eqtutor models`, or file.py:make for a network of your own.'),
    out:Path=typer.Option(
        ..., '--out', '-o', help='net.pt2, net.onnx or net.safetensors.'),
    weights:str=typer.Option(
        None, help='A checkpoint or safetensors file, or the name of trained weights '
                   'of the package; random weights if left out.'),
    shape:str=typer.Option(
        None, '--input', help='Channels, height and width of a picture: 3,224,224.  '
                              '[default: as the network was made for]'),
    compact:bool=typer.Option(
        False, '--compact', help='Keep the weights, from which banks are made with each '
                                 'picture: smaller by as much as the group is large, slower.'),
)->None:
    "Write a network as plain torch."
    with explained():
        import torch

        from .export import export_network
        net, sizes = _network(network, weights, shape)
        path = export_network(net.float(), _new_file(out), torch.randn(2, *sizes),
                              not compact)
    typer.echo(f'Written to {path}: plain torch, for any number of pictures of '
               f'{sizes[-2]}×{sizes[-1]} pixels.')

FOUR_NETWORKS = ['z2-cnn', 'p4-cnn', 'alpha-F-p4-cnn', 'p4-e4-net']

@app.command(help=(
    'Parameters, MACs of one image, and the time of a training step as a ratio to the '
    'p4-CNN\'s, by the protocol of all benchmarks.'))
def bench(
    networks:list[str]=typer.Argument(
        None, help='Names of `eqtutor models`, or one benchmark of a chapter: '
                   'networks, attentive, affine, e4, gsa, frame. Four small networks '
                   'for digits if left out.'),
    batch:int=typer.Option(16, min=1, help='Images in a step, of networks by name.'),
    memory:bool=typer.Option(
        False, help='Measure peak memory too, of networks by name.'),
    device:str=typer.Option('cpu', help='cpu or cuda.'),
    variants:str=typer.Option(
        None, help='Some of eager, compiled, bf16 and "compiled bf16", with commas '
                   'between.', show_default='eager,compiled; on cuda all'),
    smoke:bool=typer.Option(
        False, '--smoke', help='Only try whether all of it runs: two images, one '
                               'repeat, one network of each table.'),
    out:Path=typer.Option(
        None, help='Write what was measured, with protocol, versions and hardware, to '
                   'this JSON file.'),
    rows:Path=typer.Option(
        None, help='Keep what is measured here as it comes, and go on from there; the '
                   'file goes when all is measured.'),
    timeout:float=typer.Option(
        3600, min=1, help='Seconds for a row; what takes longer is left out.'),
    as_json:bool=typer.Option(False, '--json', help='Print the same as JSON.'),
)->None:
    "Parameters, MACs, and time over the p4-CNN's; or a benchmark by its name."
    with explained():
        from .papers.protocol import benchmark_record, measure, standard_protocol
        file = _new_file(out) if out else None
        store = _new_file(rows) if rows else None
        name, comparisons = _comparisons(networks or FOUR_NETWORKS, batch, memory)
        labels = [v.strip() for v in variants.split(',')] if variants else None
        protocol = standard_protocol(device, smoke, labels, timeout)
        outcome = measure(comparisons, protocol, store, bar=store is not None)
        record = benchmark_record(name, outcome, protocol)
        text = json.dumps(record, indent=1, ensure_ascii=False) + '\n'
        if file: write_atomic(file, text.encode())
        if store: store.unlink(missing_ok=True)
    typer.echo(text if as_json else _tables(record, outcome))
    for row, reason in outcome.left_out.items():
        typer.secho(f'left out: {row}: {reason}', fg='red', err=True)
    if outcome.left_out: raise typer.Exit(1)

def _comparisons(names:list[str], batch:int, memory:bool)->tuple[str, list[Comparison]]:
    "What to call it, and what to measure: a benchmark by name, or networks."
    from .papers.benchmarks import load_benchmarks
    from .papers.benchmarks.networks import compare_networks
    benchmarks = load_benchmarks()
    chosen = [name for name in names if name in benchmarks]
    if not chosen: return 'networks', compare_networks(names, batch, memory)
    if len(names) == 1: return names[0], benchmarks[names[0]]()
    raise ValueError(f'{chosen[0]} is a whole benchmark and stands alone, got '
                     f'{", ".join(names)}. Call `eqtutor bench` once for each.')

def _tables(record:dict, outcome:Measured)->str:
    "What `eqtutor bench` prints: titles and tables, and how they were measured."
    from .measure import markdown_table
    from .papers.protocol import conditions
    tables = [f'{title}\n\n{markdown_table(rows)}'
              for title, rows in outcome.tables.items()]
    return '\n\n'.join([*tables, conditions(record)])

# what `fit` calls by its names
TYPED = {'resume=True': '--resume', 'correct the folder': 'correct --runs',
         'give another folder': 'give another folder by --runs',
         'in another folder': 'in another folder (--runs)',
         'choose a folder you': 'choose with --runs a folder you'}

@app.command(help=(
    'Train a network, test it, and write the result with settings, '
    'versions, hardware and every epoch.'))
@settings_as_options
def train(
    config:Path=typer.Argument(
        None, help='A JSON file of settings; every name below may stand in it, '
                   'with _ for -.'),
    recipe:str=typer.Option(
        None, help='How a paper trained: "P1 rotMNIST", "P4 CIFAR", …; settings below '
                   'change parts of it. A wrong name lists all.'),
    out:Path=typer.Option(
        Path('results'),
        help='The result goes to OUT/<network>-<data>[-…]/<seed>.json; part of the '
             'data or an augmentation is named there.'),
    as_json:bool=typer.Option(False, '--json', help='Print the result as JSON.'),
    runs:Path=typer.Option(
        Path('runs'), help='Checkpoint and log go to '
                           'RUNS/<network>-<data>[-…]/<seed>/.'),
    resume:bool=typer.Option(False, help='Go on with the run in RUNS, bit for bit.'),
    estimate:bool=typer.Option(
        False, '--estimate', help='Only say what the run would take: steps, '
                                  'multiplications, memory, time.'),
    **settings:Any,
)->None:
    "Train a network, test it, and write the result."
    with explained(TYPED):
        from .papers.estimate import estimate_training
        from .train import Training, run_training
        from .train.processes import is_first_process
        asked = Training.read(config, recipe, **settings)
        if estimate:
            guess = estimate_training(asked)
            result, text = asdict(guess), str(guess)
        else:
            result = run_training(asked, out.expanduser(), runs.expanduser(), resume)
            average = ''
            if 'ema_test' in result:
                average = f' (of the averaged weights {result["ema_test"]["accuracy"]:.2%})'
            text = (f'{asked.network} ({result["parameters"]:,} parameters) '
                    f'on {asked.data}, {asked.epochs} epochs, {result["seconds"]:.0f} s: '
                    f'test accuracy {result["test"]["accuracy"]:.2%}{average}. '
                    f'Written to {out/asked.experiment}/{asked.seed}.json')
    if not is_first_process(): return
    typer.echo(json.dumps(result, ensure_ascii=False) if as_json else text)

@app.command(help=(
    "Run the papers' tables by their full recipes, the most informative row first; "
    'benchmarks before, where they are asked for. The same command goes on where it was '
    'stopped. Exit code 75: the budget is spent and something is left.'))
def reproduce(
    table:list[str]=typer.Option(
        [], help='P1.1 is paper P1, Table 1; bench all benchmarks of this device, bench.e4 '
                 'one; give the option again for more.', show_default='all tables'),
    rows:list[str]=typer.Option(
        [], help='Networks by name or label, * for any letters; again for more.',
        show_default='all'),
    budget:str=typer.Option(
        None, help='Stop in time: 3h, 45m, 1h30m.', show_default='when all is done'),
    seeds:int=typer.Option(1, min=1, help='Runs of each row.'),
    jobs:int=typer.Option(
        1, min=1, help='Runs side by side; they share the cores, and each has a GPU.'),
    executor:str=typer.Option('local', help='local, or slurm (through submitit).'),
    out:Path=typer.Option(
        None, help='Results go to OUT, one file a run; what is not complete to '
                   'OUT/unfinished.', show_default='results; with --smoke runs/smoke'),
    dry_run:bool=typer.Option(
        False, '--dry-run', help='Only say what is done, what is left, in which order, '
                                 'and about what it takes; nothing runs.'),
    measure:bool=typer.Option(
        False, '--measure', help='Try a few steps of each network for the plan, where no '
                                 'run of it is known.'),
    smoke:bool=typer.Option(
        False, '--smoke', help='Only try whether all of it runs here: a few images, two '
                               'epochs; benchmarks of two images, one repeat.'),
    as_json:bool=typer.Option(False, '--json', help='Print the plan as JSON.'),
)->None:
    "Run the papers' tables by their full recipes."
    folder = (out or Path('runs/smoke' if smoke else 'results')).expanduser()
    with explained():
        from .papers.reproduce import Order, Place, carry_out, make_plan
        from .papers.standing import standing
        place, code = Place(folder, folder/'unfinished'), 0
        order = Order(table, rows, seeds, budget, jobs, executor, smoke, measure)
        plan = make_plan(order.jobs, place, order.measure, order.benchmarks,
                         lambda line: typer.echo(line, err=True))
        shown = json.dumps(plan.rows(), ensure_ascii=False) if as_json else str(plan)
        typer.echo(shown if as_json else f'{standing(place)}\n\n{shown}')
        if not dry_run: code = carry_out(plan, place, order)
    if code: raise typer.Exit(code)

@app.command(help=(
    'Copy the course out of the installed package, as a student gets '
    'it, and open JupyterLab at its first page. Files you have changed are kept. '
    'What stands behind -- goes to JupyterLab: eqtutor lab -- --allow-root'))
def lab(
    folder:str=typer.Argument(
        'eqtutor-course', help='Where the course is copied to.'),
    arguments:list[str]=typer.Argument(None, help='Arguments for JupyterLab.'),
    solutions:bool=typer.Option(
        False, '--solutions', help='For teachers: the notebooks with solutions.'),
    colab:bool=typer.Option(
        False, '--colab',
        help='To publish: all chapters, and each installs this commit on Colab.'),
    complete:bool=typer.Option(
        False, '--all', help='All chapters, those for teachers too.'),
    open_:bool=typer.Option(True, '--open/--no-open', help='Open JupyterLab there.'),
)->None:
    "Copy the course out of the installed package, and open JupyterLab there."
    words = [folder, *(arguments or [])]
    if folder.startswith('-'): words = ['eqtutor-course', *words]   # behind a --
    with explained():
        from .tutor.student import copy_course, open_lab
        if not words[0].strip(): raise ValueError('The name of the folder is empty.')
        place = writable_folder(Path(words[0]).expanduser(), 'another folder')
        done = copy_course(place, solutions, colab=colab, complete=complete)
        lines = [f'{len(done["written"])} files in {place}']
        lines += [f'kept, for it was changed: {path}' for path in done['kept']]
        typer.echo('\n'.join(lines))
        code = open_lab(place, words[1:]) if open_ else 0
    raise typer.Exit(code)

labs = typer.Typer(
    help='Exercises: students\' notebooks, marks, and one\'s own progress.',
    no_args_is_help=True)
app.add_typer(labs, name='labs')

def chapter_names(chapters:list[str], more:list[str]|None)->list[str]:
    "Names of chapters, behind commas or blanks."
    return [name for word in [*chapters, *(more or [])] for name in word.split(',') if name]

@labs.command('build', help=(
    "Write students' notebooks: solutions replaced by stubs, no "
    "outputs, with nbgrader's metadata."))
def labs_build(
    out:Path=typer.Argument(
        ..., help='Folder for the notebooks: OUT/<chapter>/<chapter>.ipynb, '
                  'nbgrader\'s source folder.'),
    more:list[str]=typer.Argument(None, help='Further chapters: --chapters 01 05.'),
    chapters:list[str]=typer.Option(
        [], help='05 or 05_convolution; more of them behind commas or blanks.  '
                 '[default: all that have exercises]'),
    by_student:Path=typer.Option(
        None, '--seed-by-student',
        help='A list of the class (CSV), names in its first column: each student gets '
             'OUT/<student>/<chapter>.ipynb, whose checks draw other numbers.'),
    seed:int=typer.Option(
        0, help='Of these numbers. `labs grade --seed` with the same seed puts the '
                'same ones to what lies in the student\'s folder.'),
    as_json:bool=typer.Option(False, '--json', help='Print the files as a JSON list.'),
)->None:
    "Write students' notebooks."
    names = chapter_names(chapters, more)
    with explained():
        from .tutor.student import build, first_column
        students = first_column(by_student.expanduser()) if by_student else []
        place = writable_folder(out.expanduser(), 'another folder')
        written = build(place, names, students, seed)
    text = f'{len(written)} notebooks in {out}: ' + ', '.join(p.stem for p in written)
    typer.echo(json.dumps([str(p) for p in written]) if as_json else text)

@labs.command('course', help=(
    'Write a course for nbgrader: source/<chapter>/, nbgrader_config.py with our judge, and '
    'README.md with the steps. What is there stays as it is.'))
def labs_course(
    folder:Path=typer.Argument(..., help='Folder of the course.'),
    more:list[str]=typer.Argument(None, help='Further chapters: --chapters 01 05.'),
    chapters:list[str]=typer.Option(
        [], help='05 or 05_convolution; more of them behind commas or blanks.  '
                 '[default: all that have exercises]'),
    zone:str=typer.Option(
        '', '--timezone', help="Of the times in Moodle's worksheet, Europe/Vienna.  "
                               "[default: this computer's]"),
)->None:
    "Write a course for nbgrader."
    with explained():
        from .grading.nbgrader.course import write_course
        place = writable_folder(folder.expanduser(), 'another folder')
        done = write_course(place, chapter_names(chapters, more), zone)
    lines = [f'{len(done["written"])} files in {folder}: README.md there tells the steps']
    typer.echo('\n'.join([*lines, *(f'kept: {path}' for path in done['kept'])]))

@labs.command('extend', help=(
    "Give a student of an nbgrader course, or a team, an extension, also before they hand in. "
    "Call it in the course's folder."))
def labs_extend(
    assignment:str=typer.Argument(..., help='05_convolution'),
    student:str=typer.Argument(..., help='As nbgrader calls them: `nbgrader db student list`.'),
    days:float=typer.Option(..., help='In all; 0 takes it back.'),
)->None:
    "Give a student an extension."
    with explained():
        from .grading.nbgrader.late import extend
        due = extend(Path('.'), assignment, student, days)
    typer.echo(f'{student}: {assignment} until {due:%Y-%m-%d %H:%M} UTC')

@labs.command('grade', help=(
    'Grade a folder of hand-ins, each in a sandbox of its own (bubblewrap): no network, no file of '
    'yours, limits on time and memory. Exit code 1 if a file could not be graded.'))
def labs_grade(
    folder:Path=typer.Argument(
        ..., help='A folder with a folder for each student, or one notebook. Zips: unpack them; '
                  'for a class with grade book and rubrics see `eqtutor labs course`.'),
    out:Path=typer.Option(
        Path('marks'), help='Folder for marks.csv, marks.json, results/ and pages/, a page for '
                            'each student. What is graded there already is not graded again.'),
    chapter:str=typer.Option(
        None, help='05, where the files do not say.  [default: read from each file]'),
    seconds:int=typer.Option(10, min=1, help='Time for one answer.'),
    memory:int=typer.Option(
        1024, min=64, help='MB for a hand-in, beyond what torch needs.'),
    workers:int=typer.Option(
        None, min=1, help='Hand-ins side by side.  [default: one a core]'),
    seed:int=typer.Option(
        None, help='Seed of the random cases. Each hand-in gets its own from it, written into '
                   'its result.  [default: a new one]'),
    unsafe:bool=typer.Option(
        False, '--unsafe', help='Grade without a sandbox, where bubblewrap is missing. A hand-in '
                                'can then read, change and send whatever you can; every result '
                                'says so.'),
    as_json:bool=typer.Option(False, '--json', help='Print the results as JSON.'),
)->None:
    "Grade a folder of hand-ins, each in a sandbox of its own."
    def report(record:dict)->None:
        if not as_json: typer.echo(_marks_line(record))
    with explained():
        from .grading.grade import grade
        from .grading.limits import Limits
        from .grading.sandbox import not_held
        place = out.expanduser().absolute()
        records = grade(folder.expanduser(), place, chapter, Limits(seconds, memory), workers,
                        seed, unsafe, report)
    there = ', '.join(sorted(p.name for p in place.iterdir()))
    text = f'Written to {place}: {there}.'
    if note := not_held(unsafe): text += f' {note}'
    # JSON in ASCII: a file's name may be no text
    typer.echo(json.dumps(records) if as_json else text)
    if any(r['problem'] for r in records): raise typer.Exit(1)

def _marks_line(record:dict)->str:
    "One line on a graded file."
    said, by_hand = record['problem'], record['by hand']
    if not said:
        said = f'{record["marks"]:g} of {record["of"]}'
        if by_hand: said += f', {by_hand} by hand'
    return _printable(f'{record["name"]}: {said}') + (
        '' if record['new'] else ' (as before)')

def _printable(text:str)->str:
    "The text without what moves a terminal's cursor, or is half a character."
    return ''.join(c if c.isprintable() else ascii(c)[1:-1] for c in text)

@labs.command('progress', help=(
    'Where you stand: each exercise of your notebooks, and what to look at. Works '
    'offline; nothing is written. It runs your answers without a sandbox: give it '
    'your own notebooks only.'))
def labs_progress(
    notebooks:list[Path]=typer.Argument(
        None, help='Your notebooks, or folders of them.  [default: .]'),
    as_json:bool=typer.Option(False, '--json', help='Print the rows as JSON.'),
)->None:
    "Where you stand: each exercise of your notebooks, and what to look at."
    paths = [p.expanduser() for p in notebooks or [Path('.')]]
    with explained():
        from .grading.results import own_verdicts
        from .tutor.progress import progress, progress_table
        rows = progress(own_verdicts(paths))
    if as_json: typer.echo(json.dumps(rows, ensure_ascii=False))
    else: typer.echo(progress_table(rows))

@app.command(help=(
    'Write what somebody needs who presents a paper (P4) or a lesson (05): slides and a handout '
    'for any browser, without a network, and the notebooks to run.'))
def sessions(
    names:list[str]=typer.Argument(
        ..., metavar='NAME... FOLDER', help='One or several sessions, or all; then the folder.'),
)->None:
    "Write slides, handout and notebooks of a session."
    with explained():
        from .sessions import SESSIONS, write_session
        *chosen, out = names
        if not chosen: raise ValueError(f'Name a session, then a folder. There are '
                                        f'{", ".join(SESSIONS)}; or all.')
        several = chosen == ['all'] or len(chosen) > 1
        for name in SESSIONS if chosen == ['all'] else chosen:
            place = Path(out).expanduser()/name.upper() if several else Path(out).expanduser()
            files = write_session(name, place)
            typer.echo(f'{place}: {", ".join(file.name for file in files)}')

@app.command(help=(
    'Write a page in which you turn a picture and a network shows what it sees: '
    'self-contained, for any browser.'))
def widget(
    network:str=typer.Argument('p4-cnn', help='A name of `eqtutor models`.'),
    image:Path=typer.Option(
        None, help='A picture file; its middle square is taken.  [default: digits, or '
                   'noise where the network wants colours]'),
    layer:str=typer.Option(
        None, help='Look at this layer first, a name of `net.named_modules()`.  '
                   '[default: the first ReLU behind a group axis]'),
    channel:int=typer.Option(0, min=0),
    weights:Path=typer.Option(
        None, help='A checkpoint, a safetensors file or a name, as p4-cnn-rotmnist.  '
                   '[default: trained weights of the package, or random ones]'),
    compare:str=typer.Option(
        '', help='Beside it: broken (one of its layers turns no filter), plain (the '
                 'same network without a group), or both, with a comma.'),
    plain_weights:Path=typer.Option(
        None, help='Weights of the plain network.  [default: trained like the other\'s]'),
    group:str=typer.Option(None, help='A group\'s name.  [default: the network\'s]'),
    out:Path=typer.Option(
        Path('widget.html'), help='One HTML file that needs nothing else.'),
)->None:
    "Write a page in which you turn a picture and a network shows what it sees."
    with explained():
        from .models.registry import get_model
        from .widgets import TurnThePicture
        model = get_model(network)
        net, known = _known_weights(model, weights)
        nets, about = {model.name: net}, [known]
        for twin in filter(None, compare.split(',')):
            other, known = _twin(twin, model, net, weights, plain_weights)
            nets |= other
            about.append(known)
        note = '; '.join(f'{name}: {known}' for name, known in zip(nets, about)) + '.'
        shown = TurnThePicture(
            nets, **_pictures(model, image), group=group or group_of(model.name),
            layer=layer, channel=channel, note=note)
        shown.save(_new_file(out))
    typer.echo(f'{note}\nWritten to {out}: open it in any browser and turn the picture.')

RANDOM = 'random weights, never trained'

def _known_weights(
    model:Model, weights:Path|None,
)->tuple[nn.Module, str]:
    "A network with the weights that are asked for or lie in the package, and which."
    from .widgets import upright_networks
    if weights: return _built(model, weights), f'weights of {Path(weights).name}'
    upright = upright_networks()
    own = {'p4-cnn': 'p4 network', 'z2-cnn': 'plain network'}.get(model.name)
    if own:
        seen = f'trained on {upright.about["train"]:,} upright digits'
        return upright.networks[own].double(), seen
    return _built(model, None), RANDOM

def _twin(
    twin:str, model:Model, net:nn.Module, weights:Path|None, plain_weights:Path|None,
)->tuple[dict[str, nn.Module], str]:
    "A network to compare with, 'broken' or 'plain', and what weights it has."
    from .models.registry import get_model
    from .widgets import broken_twin
    if twin == 'broken':
        return {f'broken {model.name}': broken_twin(net)}, 'the same, one layer broken'
    if twin != 'plain':
        raise ValueError(f'--compare knows broken and plain, got {twin!r}')
    own = group_of(model.name).lower()
    plain = get_model(model.name.replace(own, 'z2', 1))
    alike = plain_weights or (weights and _alike(weights, model.name, plain.name))
    if weights and not alike: return {plain.name: _built(plain, None)}, RANDOM
    other, known = _known_weights(plain, alike)
    return {plain.name: other}, known

def _alike(weights:Path, name:str, other:str)->Path|None:
    "The weights of another network from the same training, if the package or a folder has them."
    from .train.checkpoints import trained_weights
    beside = weights.with_name(weights.name.replace(name, other, 1))
    if beside.name in trained_weights(): return Path(beside.name)
    return beside if beside.is_file() and beside != weights else None

def _pictures(model:Model, image:Path|None)->dict[str, Any]:
    "Pictures for a network, and what they are normalised by."
    import torch

    from .widgets import upright_networks
    c, h, _ = model.input_shape
    if (c, h) == (1, 28):
        digits = upright_networks()
        scale = dict(mean=digits.about['mean'], std=digits.about['std'])
        shown = {'picture': _picture(image, c, h)} if image else digits.pictures
        return dict(pictures=shown) | scale
    if image: return dict(pictures=_picture(image, c, h))
    torch.manual_seed(0)
    return dict(pictures=torch.rand(model.input_shape))

def _picture(path:Path, channels:int, size:int)->Tensor:
    "The middle square of a picture, `(c, size, size)`, from 0 to 1."
    import numpy as np
    import torch
    with needs('lab'):
        from PIL import Image
    picture = Image.open(path).convert('L' if channels == 1 else 'RGB')
    s, (w, h) = min(picture.size), picture.size
    square = (w - s)//2, (h - s)//2, (w + s)//2, (h + s)//2
    picture = picture.crop(square).resize((size, size))
    x = torch.tensor(np.asarray(picture), dtype=torch.float64)/255
    return x if channels == 1 else x.movedim(-1, 0)
