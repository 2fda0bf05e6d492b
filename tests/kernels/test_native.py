"C on a processor: where it is built, when it is not, and that nobody can tell but by the clock."
import ctypes
import io
import logging
import os
import shutil
import subprocess
import sys
import warnings
from functools import partial
from pathlib import Path

import pytest
import torch

from eqtutor import core
from eqtutor.kernels import native
from eqtutor.kernels.native import (
    build,
    find_compiler,
    library_folder,
    native_library,
    needed_library,
    runs_native,
)
from eqtutor.kernels.windows import Window, derive, window_sum
from eqtutor.nn import (
    AffineSelfConv2d,
    AttentiveGroupConv2d,
    AttentiveLiftingConv2d,
    E4Conv2d,
    GroupAffineSelfConv2d,
    GroupSelfAttention2d,
    GroupSimpleAffineSelfConv2d,
    LiftingAffineSelfConv2d,
    SimpleAffineSelfConv2d,
)
from tests.forked import script, start, wait

SOURCES = sorted(Path(native.__file__).parent.glob('*.c'))
compiled = pytest.mark.skipif(find_compiler() is None, reason='no C compiler, or EQTUTOR_NATIVE=0')


@pytest.fixture(autouse=True)
def forgotten():
    "What was loaded before is looked for again, and again after the test."
    yield
    forget()
    native.own_folder.cache_clear()

def forget():
    native_library.cache_clear()
    native.announce.cache_clear()


# --- the compiler

@compiled
@pytest.mark.parametrize('source', SOURCES, ids=lambda p: p.stem)
@pytest.mark.parametrize('real', ['float', 'double'])
def test_sources_compile_without_a_warning(source, real, tmp_path, monkeypatch):
    strict = '-Wall', '-Wextra', '-Werror', '-O1'   # as much as the warnings need
    monkeypatch.setattr(native, 'OPTIONS', (*native.OPTIONS, *strict))
    built = build(find_compiler(), source, real, tmp_path, 'x')
    assert list(tmp_path.iterdir()) == [built] and built.match('x-*.so')

@pytest.fixture
def compiler(monkeypatch, tmp_path):
    "One that writes down how often it runs, and an empty cache."
    program, runs = tmp_path/'cc', tmp_path/'runs'
    program.write_text(f'#!/bin/sh\necho >> {runs}\nexec {find_compiler()} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv('CC', str(program))
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path/'cache'))
    forget()
    return lambda: runs.read_text().count('\n') if runs.exists() else 0

class Terminal(io.StringIO):
    def isatty(self): return True

@compiled
def test_nothing_is_built_where_none_is_wanted(compiler, monkeypatch):
    monkeypatch.setenv('EQTUTOR_NATIVE', '0')
    monkeypatch.setattr(sys, 'stderr', Terminal())
    assert find_compiler() is None
    assert native_library('windows', torch.float32) is None
    window_sum(torch.randn(1, 1, 9, 4, 5), torch.randn(1, 1, 2, 4, 5), 3)
    assert compiler() == 0 and sys.stderr.getvalue() == ''
    monkeypatch.delenv('EQTUTOR_NATIVE')
    forget()
    assert native_library('windows', torch.float32) and compiler() == 1

@compiled
def test_at_a_terminal_one_line_says_that_a_compiler_runs(compiler, monkeypatch):
    for lines in 1, 0:   # built, and then found
        monkeypatch.setattr(sys, 'stderr', Terminal())
        forget()
        assert native_library('windows', torch.float32)
        assert native_library('windows', torch.float64)
        text = sys.stderr.getvalue()
        assert text.count('\n') == text.count('EQTUTOR_NATIVE=0 refuses it') == lines
    assert compiler() == 2

@compiled
@pytest.mark.parametrize('level', [logging.INFO, logging.WARNING])
def test_elsewhere_the_log_says_it_to_who_reads_it(level, compiler, monkeypatch, caplog, capsys):
    "A notebook would store the line, and a program that reads a pipe would meet it."
    caplog.set_level(level, 'eqtutor')
    assert native_library('windows', torch.float32) and compiler() == 1
    assert len(caplog.messages) == (level == logging.INFO)
    assert capsys.readouterr() == ('', '')

@compiled
def test_a_compiler_that_fails_is_told_of_and_torch_computes(monkeypatch, tmp_path):
    broken = tmp_path/'cc'
    broken.write_text('#!/bin/sh\necho "no space left" >&2\nexit 1\n')
    broken.chmod(0o755)
    monkeypatch.setenv('CC', str(broken))
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path/'cache'))
    forget()
    w, v = torch.randn(1, 1, 9, 4, 5), torch.randn(1, 1, 2, 4, 5)
    with pytest.warns(UserWarning, match='no space left'): y = window_sum(w, v, 3)
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        again = window_sum(w, v, 3)   # is told once
    assert torch.equal(y, again) and y.std() > .1
    assert not list((tmp_path/'cache').rglob('*.*'))

@compiled
def test_libraries_are_kept_and_found_again(monkeypatch, tmp_path):
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
    forget()
    assert native_library('windows', torch.float64)
    kept, = tmp_path.rglob('*.so')
    written = kept.stat().st_mtime_ns
    forget()
    assert native_library('windows', torch.float64)
    assert kept.stat().st_mtime_ns == written

USER = """
import sys, warnings
import torch
import torch.nn.functional as F
from eqtutor.kernels import native
from eqtutor.kernels.windows import window_sum

built, build = [], native.build
native.build = lambda *arguments: built.append(arguments) or build(*arguments)
warnings.simplefilter('error')
torch.manual_seed(0)
w, v = torch.randn(2, 1, 9, 5, 6), torch.randn(2, 1, 3, 5, 6)
near = F.unfold(v[:, 0], 3, padding=1).view(2, 1, 3, 9, 5, 6)
want = torch.einsum('bnkyx,bndkyx->bndyx', w, near)
torch.testing.assert_close(window_sum(w, v, 3), want)
library = native.native_library('windows', torch.float32)
assert library, 'torch computes in its place'
assert len(built) == int(sys.argv[1]), f'built {len(built)} times'
print(library._name)
"""

def use(folder, cache, builds):
    "In a process of its own: C gives what torch gives; how often it is built; its library."
    program, output = folder/'user.py', folder/'output'
    program.write_text(USER)
    process = start(script, program, (str(builds),), output=output,
                    environ={'XDG_CACHE_HOME': str(cache)})
    assert wait(process, output, 300), f'exit status {process.exitcode}: {output.read_text()}'
    return Path(output.read_text().strip())

def cut(path): os.truncate(path, path.stat().st_size//2)

def empty(path): os.truncate(path, 0)

def change(path):
    whole = path.read_bytes()
    path.write_bytes(whole[:4000] + bytes(255 - byte for byte in whole[4000:7000]) + whole[7000:])

def replace_by_text(path): path.write_text('no library')

def replace_by_another(path):
    attention = Path(native.__file__).with_name('attention.c')
    os.replace(native.build(find_compiler(), attention, 'float', path.parent, 'other'), path)

def forget_its_digest(path): path.rename(path.with_name(path.name.rpartition('-')[0] + '.so'))

def replace_by_one_that_cannot_be_loaded(path):
    path.write_text('of another system')
    path.rename(path.with_name(f'{path.name.rpartition("-")[0]}-{native.digest_of(path)}.so'))

@pytest.fixture(scope='module')
def library(tmp_path_factory):
    "As it was built by another process, in a cache of its own."
    folder = tmp_path_factory.mktemp('built')
    return use(folder, folder/'cache', builds=1)

@compiled
@pytest.mark.parametrize('damage', [
    cut, empty, change, replace_by_text, replace_by_another, forget_its_digest,
    replace_by_one_that_cannot_be_loaded], ids=lambda f: f.__name__)
def test_a_library_that_is_not_what_was_built_is_built_again(damage, library, tmp_path):
    copy = tmp_path/'cache'/'eqtutor'/'native'/library.name
    copy.parent.mkdir(parents=True)
    shutil.copy(library, copy)
    damage(copy)
    assert use(tmp_path, tmp_path/'cache', builds=1) == copy
    assert copy.read_bytes() == library.read_bytes()
    assert list(copy.parent.glob('*-*-*-*.so')) == [copy]   # what was damaged is gone

@compiled
def test_a_library_that_is_what_was_built_is_used(library):
    assert use(library.parent, library.parents[2], builds=0) == library

@compiled
def test_c_computes_where_nothing_can_be_kept(tmp_path):
    use(tmp_path, '/proc', builds=1)

@compiled
def test_a_library_that_cannot_be_loaded_is_called_so(monkeypatch, tmp_path):
    "A compiler that writes anything but a library; its words are not blamed for it."
    compiler = tmp_path/'cc'
    compiler.write_text('#!/bin/sh\nfor last; do :; done\necho rubbish > "$last"\n')
    compiler.chmod(0o755)
    monkeypatch.setenv('CC', str(compiler))
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path/'cache'))
    forget()
    with pytest.warns(UserWarning, match='just built of windows.c, cannot be loaded; torch'):
        assert native_library('windows', torch.float32) is None

@pytest.mark.parametrize('root', ['/dev/null', '/proc'])
def test_a_folder_of_ones_own_where_nothing_can_be_kept(root, monkeypatch):
    monkeypatch.setenv('XDG_CACHE_HOME', root)
    folder = library_folder()
    assert folder.is_dir() and not str(folder).startswith(root)
    assert folder.stat().st_mode & 0o077 == 0, 'others could put a library there'


def test_no_home_is_made_where_there_is_none(monkeypatch, tmp_path):
    monkeypatch.delenv('XDG_CACHE_HOME', raising=False)
    monkeypatch.setenv('HOME', str(tmp_path/'gone'))
    assert library_folder().is_dir() and not (tmp_path/'gone').exists()


# --- what Python gives to C

NUMBERS = dict(N=1, S=1, R=1, Q=1, k=3, d=2, h=4, w=4, Y=6, X=6, padding=1, seed=0, drop=0)

@pytest.mark.parametrize('change', [dict(w=None), dict(width=4), dict(W=8), dict(X=6.5)], ids=str)
def test_a_number_that_is_missing_unknown_or_c_s_own_is_refused(change):
    values = {name: n for name, n in {**NUMBERS, **change}.items() if n is not None}
    with pytest.raises(TypeError): native.filled(native.struct_of('attention'), threads=1, **values)

def test_fields_are_set_by_name_as_the_source_orders_them():
    form = native.filled(native.struct_of('attention'), threads=5, q=torch.ones(2), **NUMBERS)
    assert {name: getattr(form, name) for name in NUMBERS} == NUMBERS and form.threads == 5
    assert form.q and form.kv is None
    text = Path(native.__file__).with_name('attention.c').read_text()
    assert 'long N, S, R, Q, k, d, h, w, Y, X, padding, threads;' in text
    numbers = bytes(form)[10*ctypes.sizeof(ctypes.c_void_p):]   # after ten pointers
    assert [*memoryview(numbers).cast('l')[:12]] == [1, 1, 1, 1, 3, 2, 4, 4, 6, 6, 1, 5]

@compiled
def test_a_library_with_another_form_is_not_used(compiler, monkeypatch):
    monkeypatch.setattr(native, 'struct_of', lambda name: ctypes.c_long)
    with pytest.warns(UserWarning, match='takes a Form of .* bytes, expected one of 8'):
        assert native_library('windows', torch.float32) is None


# --- what it computes

def test_only_what_c_knows_goes_there():
    x = torch.ones(2)
    assert not runs_native('windows', x.bfloat16())
    assert not runs_native('windows', x, x.double())
    assert not runs_native('windows', x.to('meta'))
    assert not torch.func.vmap(lambda x: torch.tensor(runs_native('windows', x)))(x).any()

class Without:
    "A module, less a name."
    def __init__(self, module, **others):
        self.module, self.others = module, others

    def __getattr__(self, name):
        if self.others.get(name, '') is None: raise AttributeError(name)
        return self.others.get(name) or getattr(self.module, name)

PRIVATE = '_are_functorch_transforms_active', '_len_torch_dispatch_stack'

@pytest.mark.parametrize('lacking', [*[(name,) for name in PRIVATE], PRIVATE], ids='+'.join)
def test_layers_run_where_torch_lacks_names_it_never_promised(lacking, monkeypatch):
    want = {name: step(name) for name in LAYERS}
    poorer = Without(torch, _C=Without(torch._C, **dict.fromkeys(lacking)))
    for module in (core, native): monkeypatch.setattr(module, 'torch', poorer)
    assert not runs_native('windows', torch.ones(2)), 'C, where nobody knows who looks'
    for name, tensors in want.items():
        for a, b in zip(step(name), tensors): torch.testing.assert_close(a, b, **CLOSE)

CLOSE = dict(rtol=1e-10, atol=1e-11)
LAYERS = {'E4': (lambda: E4Conv2d(4, 4, 3, 'p4m'), (2, 4, 8, 9, 11)),
          'self-attention': (lambda: GroupSelfAttention2d(4, 4, 'p4', window=3, heads=2),
                             (2, 4, 4, 6, 11)),
          'attention of pairs': (lambda: AttentiveGroupConv2d(3, 5, 3, 'p4', padding=1),
                                 (2, 3, 4, 6, 11)),
          'its factors': (lambda: AttentiveGroupConv2d(2, 9, 5, 'p4m', attention_kernel=3,
                                                       attention_dilation=2), (3, 2, 8, 7, 31)),
          # α^C ψ without places, ψ of places without channels, and one pose that is read
          **{f'attention of pairs, {attend}': (
              partial(AttentiveGroupConv2d, 3, 5, 3, 'p4', dilation=2, attend=attend),
              (2, 3, 4, 9, 11)) for attend in ('channel', 'spatial')},
          'attention of pairs, lifting': (lambda: AttentiveLiftingConv2d(3, 5, 3, 'p4', padding=1),
                                          (2, 3, 6, 11)),
          # ψ of each offset, and of each pose of the source
          'affine': (lambda: AffineSelfConv2d(4, 12, 3, 2), (2, 4, 6, 11)),
          'simple affine': (lambda: SimpleAffineSelfConv2d(4, 6, 5, 3), (2, 4, 9, 3)),
          'affine on G': (lambda: GroupAffineSelfConv2d(4, 12, 3, 'p4m', 2), (2, 4, 8, 6, 11)),
          'simple affine on G': (lambda: GroupSimpleAffineSelfConv2d(4, 6, 5, 'p4', 3),
                                 (2, 4, 4, 9, 3)),
          'affine lifting': (lambda: LiftingAffineSelfConv2d(4, 6, 3, 'p4', 2), (2, 4, 6, 11))}

def step(name, dtype=torch.float64):
    "Output and gradients of a training step, the same each time."
    torch.manual_seed(0)
    make, shape = LAYERS[name]
    layer, x = make().to(dtype), torch.randn(shape, dtype=dtype, requires_grad=True)
    y = layer(x)
    (y*torch.randn(y.shape, dtype=dtype)).sum().backward()
    return [y.detach(), x.grad, *(p.grad for p in layer.parameters())]

@compiled
@pytest.mark.parametrize('name', LAYERS)
def test_layers_compute_the_same_without_c(name, monkeypatch):
    fast = step(name)
    monkeypatch.setenv('EQTUTOR_NATIVE', '0')
    forget()
    slow = step(name)
    assert any(not torch.equal(a, b) for a, b in zip(fast, slow)), 'the same code ran twice'
    for a, b in zip(fast, slow): torch.testing.assert_close(a, b, **CLOSE)

@compiled
@pytest.mark.parametrize('scaled, sources', [(False, 1), (True, 1), (True, 3)])
@pytest.mark.parametrize('size', [(9, 11), (3, 2), (5, 17)])
@pytest.mark.parametrize('channels', [1, 6])
@pytest.mark.parametrize('window', [(3, 1), (3, 2), (5, 1)])
def test_every_form_is_what_the_loops_give(window, channels, size, sources, scaled, monkeypatch):
    "The sum and its three derivatives, with and without ψ."
    torch.manual_seed(0)
    window = Window.same(*window)
    poses, offsets = 2, window.kernel_size**2
    shape = poses, *size
    w, v, g = (torch.randn(2, 3, n, *shape, dtype=torch.float64)
               for n in (offsets, sources*channels, channels))
    psi = torch.randn(3, sources*channels, offsets, poses, 1, 1, dtype=torch.float64)
    assert runs_native('windows', w, v, g, psi)
    factors = dict(weights=w, scale=psi if scaled else None, values=v, target=g)
    def forms():
        return [derive(by, window, sources, *others(by)) for by in factors]
    def others(by): return [None if name == by else f for name, f in factors.items()]
    by_c = forms()
    monkeypatch.setattr('eqtutor.kernels.windows.runs_native', lambda *tensors: False)
    for found, want in zip(by_c, forms(), strict=True):
        assert found.shape == want.shape and want.std() > .1
        torch.testing.assert_close(found, want, rtol=1e-12, atol=1e-12)

@compiled
@pytest.mark.parametrize('name', LAYERS)
def test_any_number_of_threads_gives_the_same_bits(name):
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            found.append(step(name)[1:])
    finally: torch.set_num_threads(before)
    # what torch itself adds up may differ in its last bit
    for other in found[1:]:
        for a, b in zip(found[0], other): torch.testing.assert_close(a, b, rtol=1e-13, atol=1e-13)

@compiled
def test_forms_are_the_same_bits_with_any_number_of_threads():
    torch.manual_seed(0)
    w, v, g = (torch.randn(3, 2, n, 4, 9, 10) for n in (9, 5, 5))
    psi = torch.randn(2, 5, 9, 4, 1, 1)
    factors = dict(weights=w, scale=psi, values=v, target=g)
    before = torch.get_num_threads()
    try:
        for by in factors:
            others = [None if name == by else f for name, f in factors.items()]
            found = []
            for threads in (1, 3):
                torch.set_num_threads(threads)
                found.append(derive(by, Window.same(3), 1, *others))
            assert torch.equal(*found)
    finally: torch.set_num_threads(before)

@compiled
def test_planes_that_lie_anywhere_are_read_where_they_are():
    torch.manual_seed(0)
    w, v = torch.randn(2, 4, 9, 6, 9, 2), torch.randn(2, 6, 4, 5, 9, 2)
    w, v = w.permute(0, 1, 2, 5, 3, 4), v.permute(0, 2, 3, 5, 1, 4)   # (…, g, h, w)
    want = window_sum(w.contiguous(), v.contiguous(), 3)
    assert torch.equal(window_sum(w, v, 3), want) and want.std() > .1
    last = torch.randn(1, 1, 9, 3, 3)[..., :2]   # rows of a larger image
    v = torch.randn(1, 1, 2, 3, 2)
    assert torch.equal(window_sum(last, v, 3), window_sum(last.contiguous(), v, 3))

@compiled
@pytest.mark.parametrize('shape', [(0, 2, 3, 4, 4), (2, 1, 3, 1, 1), (1, 1, 1, 1, 17)])
def test_empty_and_tiny_images(shape, monkeypatch):
    w = torch.randn(*shape[:2], 25, *shape[3:], requires_grad=True)
    v = torch.randn(shape, requires_grad=True)
    y = window_sum(w, v, 5)
    y.sum().backward()
    assert y.shape == v.grad.shape == v.shape and w.grad.shape == w.shape
    monkeypatch.setattr('eqtutor.kernels.windows.runs_native', lambda *args: False)
    torch.testing.assert_close(y, window_sum(w, v, 5))

@compiled
def test_threads_are_those_of_torch(monkeypatch):
    "Threads of one's own would have to wait for those of torch, which spin. Here it has none."
    from eqtutor.kernels.native import parallel_of_torch
    fast = step('E4')
    monkeypatch.setattr(native, 'parallel_of_torch', lambda: None)
    forget()
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        for a, b in zip(step('E4'), fast): torch.testing.assert_close(a, b, rtol=1e-13, atol=1e-13)
    finally: torch.set_num_threads(before)
    if sys.platform == 'linux': assert parallel_of_torch().value

def test_what_was_compiled_for_c_says_why_it_cannot_run(monkeypatch):
    monkeypatch.setenv('EQTUTOR_NATIVE', '0')
    forget()
    with pytest.raises(RuntimeError, match='could not be built .* EQTUTOR_NATIVE=0'):
        needed_library('windows', torch.float32)

CHILD = """
import os, torch
from eqtutor.kernels.windows import window_sum
torch.set_num_threads(2)
w, v = torch.ones(4, 1, 9, 8, 8), torch.ones(4, 1, 2, 8, 8)
total = window_sum(w, v, 3).sum()
child = os.fork()
if child: raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
os._exit(int(window_sum(w, v, 3).sum() != total))
"""

FIRST_IN_CHILD = """
import os, torch
from eqtutor.kernels.windows import window_sum
torch.set_num_threads(2)
x = torch.ones(2000, 2000).exp().sum()   # the parent has torch's threads, the child has none
w, v = torch.ones(4, 1, 9, 8, 8), torch.ones(4, 1, 2, 8, 8)
child = os.fork()
if child: raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
os._exit(int(window_sum(w, v, 3).max() != 9))
"""

@compiled
@pytest.mark.parametrize('program', [CHILD, FIRST_IN_CHILD], ids=['again', 'first'])
def test_a_forked_child_computes_too(program):
    "Threads do not live on in a child; none wait for it here."
    subprocess.run([sys.executable, '-c', program], check=True, timeout=120)
