"""α_F and α_RH are their loops, and Equation 20 holds term by term: with α inside the sum."""
from itertools import product
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from eqtutor.actions import act
from eqtutor.equivariance import perturb_
from eqtutor.nn.attentive import AttentiveGroupConv2d


def difference(group, h, q): return group.relative[h, q]          # h⁻¹ĥ

def moved(group, h, w): return act(group, h, w[None])[0]

def slow_input(f, w, group):
    "α⁺ of α_F for f `(i, |H|, rows, columns)`, in its shape."
    def on_H(W, v):
        return torch.stack([sum(W[..., difference(group, h, q)] @ v[:, q]
                                for q in group.elements) for h in group.elements], 1)
    def score(v): return on_H(w.W2, on_H(w.W1, v).relu())
    a_c = (score(f.mean((2, 3))) + score(f.amax((2, 3)))).sigmoid()[..., None, None]
    z, k = torch.stack([(a_c*f).mean(0), (a_c*f).amax(0)]), w.psi_x.shape[-1]
    def at(h):
        turned = moved(group, h, w.psi_x).flatten(0, 1)
        return F.conv2d(z.flatten(0, 1)[None], turned[None], padding=k//2)[0, 0]
    return 1 - a_c*torch.stack([at(h) for h in group.elements]).sigmoid()

def alpha_inside(alpha, f, psi, group):
    "Eq. 20, left: Σ α(y, ĥ) ψ(h⁻¹(y − x), h⁻¹ĥ) f(y, ĥ), term by term."
    k, out = psi.shape[-1], torch.zeros_like(f[0])
    a, v = (F.pad(t, [k//2]*4) for t in (alpha, f))
    for h, i, j in product(group.elements, range(k), range(k)):
        window = slice(i, i + f.shape[2]), slice(j, j + f.shape[3])
        weight = moved(group, h, psi)[:, :, i, j, None, None]
        out[h] += (a[(..., *window)]*weight*v[(..., *window)]).sum((0, 1))
    return out

def slow_rotation(f, v, group):
    "α⁺ of α_RH `(|H|, rows, columns)`, for f `(i, |H|, rows, columns)` and v `(i, |H|)`."
    def at(h): return sum(v[:, difference(group, h, q)] @ f[:, q].flatten(1)
                          for q in group.elements)
    return torch.stack([at(h) for h in group.elements]).view(f.shape[1:]).sigmoid()

def input_weights(branch):
    "W₁, W₂ and ψ^X of α_F, as the loop takes them."
    W1, W2 = (mix.weight[..., 0, 0] for mix in (branch.squeeze, branch.excite))
    return SimpleNamespace(W1=W1, W2=W2, psi_x=branch.spatial.weight[0])

@pytest.mark.parametrize('group', ['Z2', 'mirror', 'p4', 'p4m'])
@pytest.mark.parametrize('attend', ['input', 'rotation'])
def test_attention_on_the_input_is_alpha_inside_the_sum(attend, group):
    torch.manual_seed(0)
    layer = AttentiveGroupConv2d(3, 4, 3, group, attend=attend, padding='same', bias=False)
    layer = perturb_(layer.double())
    H, branch = layer.group, layer.branch
    f = torch.randn(3, len(H), 6, 7, dtype=torch.float64)
    if attend == 'input': alpha = slow_input(f, input_weights(branch), H)
    else: alpha = slow_rotation(f, branch.scores.weight[0, ..., 0, 0], H).expand_as(f)
    y = layer(f[None])[0]
    for o in range(4):
        inside = alpha_inside(alpha, f, layer.weight[o], H)
        torch.testing.assert_close(y[o], inside, rtol=0, atol=1e-10)
