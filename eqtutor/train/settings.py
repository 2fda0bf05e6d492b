"""The settings of a training, written down once: the options of `eqtutor train`, what `fit` may be
told, the papers' recipes and the records of results take name, type and default from here."""
# Plain module: edited by hand, no notebook exports it.
# It imports nothing large: the command lists these options before it loads torch.
import inspect
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, get_args

EXAMPLE = 'Expected an object such as {"network": "p4-cnn", "epochs": 10}.'
KINDS = {str: 'a word', int: 'a whole number', float: 'a number'}


def setting(
    default:Any,
    text:str,             # what it is, in a line; `eqtutor train --help` shows it
    without:str='',       # what None stands for, where that is the default
    least:float=-math.inf,
    above:float=-math.inf,
    below:float=math.inf,
)->Any:
    "A field of `Training`: its default, what it means, and which numbers it may be."
    about = dict(text=text, without=without, least=least, above=above, below=below)
    return field(default=default, metadata=about)


@dataclass(frozen=True)
class Training:
    """A training: which network, on which images, how.

    Each setting is checked when it is made; `dataclasses.replace` changes some. A field says in its
    metadata what it means: `eqtutor train --help` prints the list.
    """
    network:str=setting('p4-cnn', 'A name of `eqtutor models`.')
    data:str=setting('rotmnist', 'digits, mnist, rotmnist, rotmnist-12000, rotmnist-original, '
                                 'cifar10, cifar100 or pcam.')
    epochs:int=setting(10, 'Passes over the training set, those before a resume included.', least=1)
    seed:int=setting(0, 'Seed of weights, order and augmentation; the data stay the same.')
    batch_size:int=setting(128, 'Images in a step, of all processes together.', least=1)
    lr:float=setting(1e-3, 'Largest learning rate.', above=0)
    weight_decay:float=setting(1e-4, 'L2, added to the gradient.', least=0)
    schedule:str=setting('constant', 'Course of the learning rate, of `SCHEDULES`.')
    optimizer:str=setting('adam', 'adam, sgd or nesterov, of `OPTIMIZERS`.')
    augment:str=setting('none', 'How training images are changed anew in each epoch, of '
                                '`AUGMENTATIONS`.')
    patience:int|None=setting(
        None, 'Epochs without a better validation loss that halve the rate.', 'never', least=1)
    clip:float|None=setting(None, 'Largest norm of the gradient.', 'none', above=0)
    ema:float|None=setting(None, 'Share of the past in an average of the weights, such as 0.999.',
                           'no average', above=0, below=1)
    precision:str|None=setting(None, 'no (float32), bf16 or fp16.', 'as launched')
    valid:int|None=setting(None, "CIFAR's training images held out to validate; 0 trains without.",
                           '10000', least=0)
    per_class:int|None=setting(None, 'Training images of each class, of CIFAR.', 'all', least=1)
    images:int|None=setting(None, 'Train on the first so many images.', 'all', least=1)
    test_images:int|None=setting(None, 'Test on the first so many images.', 'all', least=1)

    def __post_init__(self)->None:
        from .images import AUGMENTATIONS
        from .loop import OPTIMIZERS, SCHEDULES
        from .processes import PRECISIONS
        words:dict[str, list] = dict(
            schedule=[*SCHEDULES], optimizer=[*OPTIMIZERS], augment=[*AUGMENTATIONS],
            precision=[*PRECISIONS])
        for f in fields(self):
            value, (kind, *optional) = getattr(self, f.name), get_args(f.type) or (f.type,)
            if value is None and optional: continue
            number = (int, float) if kind is float else kind
            if isinstance(value, bool) or not isinstance(value, number):
                raise ValueError(f'{f.name} must be {KINDS[kind]}, got {value!r}.')
            if f.name in words and value not in words[f.name]:
                known = ', '.join(map(str, words[f.name]))
                raise ValueError(f'{f.name} must be one of {known}, got {value!r}.')
            if kind is not str: check_range(f.name, value, f.metadata)

    @property
    def experiment(self)->str:
        "The folder's name: network and data, and what is special about the data."
        from ..models.registry import get_model
        parts = [get_model(self.network).name, self.data]
        if self.images: parts.append(str(self.images))
        if self.per_class: parts.append(f'{self.per_class}-per-class')
        if self.augment != 'none': parts.append(self.augment)
        return '-'.join(parts)

    @classmethod
    def read(cls,
        path:Path|None,         # a JSON file of settings
        recipe:str|None=None,   # of `RECIPES`
        **options,              # None where an option is not given
    )->'Training':
        "Settings from a recipe, overridden by a JSON file, overridden by options that are given."
        from .loop import RECIPES
        if recipe is not None and recipe not in RECIPES:
            raise ValueError(f'unknown recipe {recipe!r}. Known are {", ".join(RECIPES)}.')
        settings = dict(vars(RECIPES[recipe])) if recipe else {}
        if path is not None: settings |= read_file(path)
        return cls(**settings | {k: v for k, v in options.items() if v is not None})


# what `fit` reads, in the order in which a run's header has it; the rest makes net and loaders
FITTED = ('epochs', 'lr', 'weight_decay', 'schedule', 'optimizer', 'clip', 'patience', 'ema',
          'precision')


def check_range(
    name:str,
    value:float,
    about,       # the metadata of the field
)->None:
    "Raise a `ValueError` unless a number is finite and in the range of its setting."
    least, above, below = (about[bound] for bound in ('least', 'above', 'below'))
    if math.isfinite(value) and value >= least and above < value < below: return
    range_ = 'finite'
    if least > -math.inf: range_ = f'at least {least}'
    if above > -math.inf: range_ = f'above {above}' + f' and below {below}'*(below < math.inf)
    raise ValueError(f'{name} must be {range_}, got {value}.')


def read_file(
    path:Path,   # of JSON
)->dict[str, Any]:
    "The settings in a file; an error that says what is wrong with it."
    try: content = json.loads(path.read_text(encoding='utf-8'))
    except ValueError as error:
        raise ValueError(f'{path} is not JSON ({error}). {EXAMPLE}') from error
    if not isinstance(content, dict): raise ValueError(f'{path} holds {content!r}. {EXAMPLE}')
    known = [f.name for f in fields(Training)]
    unknown = [name for name in content if name not in known]
    if not unknown: return content
    raise ValueError(f'{path}: unknown settings {", ".join(unknown)}. '
                     f'Known are {", ".join(known)}.')


def settings_as_options(
    command:Callable[..., Any],  # with `**settings`, which `Training.read` takes
)->Callable[..., Any]:
    "For typer: the command with an option for each setting; None where it is not given."
    import typer
    signature = inspect.signature(command, eval_str=True)
    parameters = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    for f in fields(Training):
        kind, *_ = get_args(f.type) or (f.type,)
        default = f.metadata['without'] if f.default is None else f.default
        option = typer.Option(None, help=f.metadata['text'], show_default=str(default),
                              rich_help_panel='Settings')
        parameters.append(inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=option,
                                            annotation=kind))
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return command
