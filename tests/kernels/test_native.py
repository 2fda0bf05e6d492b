"C on a processor: where it is built, when it is not, and that nobody can tell but by the clock."
import os
import subprocess
import sys
import warnings
from functools import partial
from pathlib import Path

import pytest
import torch

from eqtutor.kernels import native
from eqtutor.kernels.native import (build, find_compiler, library_folder, native_library,
                                    needed_library, runs_native)
from eqtutor.kernels.windows import Window, derive, window_sum
from eqtutor.nn import (AffineSelfConv2d, AttentiveGroupConv2d, AttentiveLiftingConv2d, E4Conv2d,
                        GroupAffineSelfConv2d, GroupSelfAttention2d, GroupSimpleAffineSelfConv2d,
                        LiftingAffineSelfConv2d, SimpleAffineSelfConv2d)

SOURCES = sorted(Path(native.__file__).parent.glob('*.c'))
compiled = pytest.mark.skipif(find_compiler() is None, reason='no C compiler, or EQTUTOR_NATIVE=0')


@pytest.fixture(autouse=True)
def forgotten():
    "What was loaded before is looked for again, and again after the test."
    yield
    native_library.cache_clear()
    native.own_folder.cache_clear()

def forget(): native_library.cache_clear()


# --- the compiler

@compiled
@pytest.mark.parametrize('source', SOURCES, ids=lambda p: p.stem)
@pytest.mark.parametrize('real', ['float', 'double'])
def test_sources_compile_without_a_warning(source, real, tmp_path, monkeypatch):
    strict = '-Wall', '-Wextra', '-Werror'
    monkeypatch.setattr(native, 'OPTIONS', (*native.OPTIONS, *strict))
    build(find_compiler(), source, real, tmp_path/'x.so')
    assert [p.name for p in tmp_path.iterdir()] == ['x.so']

def test_nothing_is_built_where_none_is_wanted(monkeypatch):
    monkeypatch.setenv('EQTUTOR_NATIVE', '0')
    forget()
    assert find_compiler() is None
    assert native_library('windows', torch.float32) is None

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


# --- what it computes

def test_only_what_c_knows_goes_there():
    x = torch.ones(2)
    assert not runs_native('windows', x.bfloat16())
    assert not runs_native('windows', x, x.double())
    assert not runs_native('windows', x.to('meta'))
    assert not torch.func.vmap(lambda x: torch.tensor(runs_native('windows', x)))(x).any()

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
    for a, b in zip(fast, slow): torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-11)

@compiled
@pytest.mark.parametrize('scaled, sources', [(False, 1), (True, 1), (True, 3)])
@pytest.mark.parametrize('size', [(9, 11), (3, 2), (5, 17)])
@pytest.mark.parametrize('channels', [1, 6])
@pytest.mark.parametrize('window', [(3, 1), (3, 2), (5, 1)])
def test_every_form_is_what_the_loops_give(window, channels, size, sources, scaled, monkeypatch):
    "The sum and its three derivatives, with and without ψ."
    torch.manual_seed(0)
    window = Window(*window, sources)
    poses, offsets = 2, window.kernel_size**2
    shape = poses, *size
    w, v, g = (torch.randn(2, 3, n, *shape, dtype=torch.float64)
               for n in (offsets, sources*channels, channels))
    psi = torch.randn(3, sources*channels, offsets, poses, 1, 1, dtype=torch.float64)
    assert runs_native('windows', w, v, g, psi)
    factors = dict(weights=w, scale=psi if scaled else None, values=v, target=g)
    def forms():
        return [derive(by, window, *(None if name == by else f for name, f in factors.items()))
                for by in factors]
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
                found.append(derive(by, Window(3), *others))
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
@pytest.mark.parametrize('script', [CHILD, FIRST_IN_CHILD], ids=['again', 'first'])
def test_a_forked_child_computes_too(script):
    "Threads do not live on in a child; none wait for it here."
    subprocess.run([sys.executable, '-c', script], check=True, timeout=120)
