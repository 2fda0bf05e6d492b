"Networks for the report: sound ones of many shapes, the same with a fault, and foreign ones."
import torch
import torch.nn.functional as F
import torchvision
from einops import rearrange
from torch import nn

from eqtutor.actions import act
from eqtutor.nn import (
    AttentiveGroupConv2d,
    E4Conv2d,
    GroupBatchNorm2d,
    GroupConv2d,
    GroupLayerNorm2d,
    GroupPool,
    GroupSelfAttention2d,
    LiftingConv2d,
    ProjectionConv2d,
    SpatialPool2d,
    SqueezeExcitation,
)

C = 4   # channels
torch.manual_seed(0)


def lift(group='p4'): return LiftingConv2d(2, C, 3, group, padding='same')

def conv(group='p4', k=3, channels=C): return GroupConv2d(channels, C, k, group, padding='same')


class Between(nn.Module):
    "A lifting layer, something of one's own, a group convolution, and the mean over all."
    def __init__(self, own=lambda net, f: f, group='p4', **parts):
        super().__init__()
        self.lift, self.relu, self.conv = lift(group), nn.ReLU(inplace=True), conv(group)
        self.order = self.conv.in_poses
        for name, part in parts.items(): setattr(self, name, part)
        self.own = own

    def forward(self, x):
        f = self.own(self, self.relu(self.lift(x)))
        return self.conv(f).mean((2, 3, 4))


class Net(nn.Module):
    "Any forward pass over some parts."
    def __init__(self, forward, **parts):
        super().__init__()
        for name, part in parts.items(): setattr(self, name, part)
        self.run = forward

    def forward(self, *args, **kwargs): return self.run(self, *args, **kwargs)


# --- what somebody may write between two layers, all of it equivariant

def residual(net, f): return f + net.relu(net.a(f))

def flat(net, f): return net.relu(f.flatten(1, 2)).unflatten(1, (C, net.order))

def einops_flat(net, f):
    y = F.relu(rearrange(f, 'b c g h w -> b (g c) h w'))
    return rearrange(y, 'b (g c) h w -> b c g h w', g=net.order)

def folded_poses(net, f):
    y = F.avg_pool2d(rearrange(f, 'b c g h w -> (b g) c h w'), 3, 1, 1)
    return rearrange(y, '(b g) c h w -> b c g h w', g=net.order)

def channels_last(net, f): return net.norm(f.movedim(1, -1)).movedim(-1, 1)

def tokens(net, f):
    t = rearrange(f, 'b c g h w -> b (g h w) c')
    return rearrange(net.mlp(t), 'b (g h w) c -> b c g h w', g=net.order, h=f.shape[-2])

def attended(net, f):
    "Tokens without positions: attention of every place to every place, pose by pose."
    b, c, g, h, w = f.shape
    t = f.permute(0, 2, 3, 4, 1).reshape(b*g, h*w, c)
    y, _ = net.attention(t, t, t)
    return f + y.reshape(b, g, h, w, c).permute(0, 4, 1, 2, 3)

def by_hand(net, f):
    "Attention by matrix products, heads and all."
    b, c, g, h, w = f.shape
    t = f.flatten(2).transpose(1, 2)
    q, k, v = net.qkv(t).reshape(b, -1, 3, 2, c//2).permute(2, 0, 3, 1, 4).unbind(0)
    y = (q @ k.transpose(-2, -1)).softmax(-1) @ v
    return y.transpose(1, 2).reshape(b, g*h*w, c).transpose(1, 2).reshape(b, c, g, h, w)

def gated(net, f): return net.se(f)

def pose_mean(net, f): return f - f.mean(2, keepdim=True)

def glu(net, f):
    value, gate = net.wide(f).chunk(2, dim=1)
    return value*gate.sigmoid()

def in_place(net, f):
    f += 1
    f[:, :2] *= 2
    return f.clamp_(min=0)

def branches(net, f):
    big = net.a(f)
    small = net.b(f)
    return net.join(torch.cat([big, small, f], 1))

def radius(net, f):
    line = torch.linspace(-1, 1, f.shape[-1], dtype=f.dtype)
    r = (line**2 + line[:, None]**2).expand(len(f), 1, f.shape[2], -1, -1)
    return net.join(torch.cat([f, r], 1))

def down_and_up(net, f):
    y = net.a(net.pool(f))
    y = F.interpolate(y.flatten(1, 2), scale_factor=2, mode='nearest').unflatten(1, y.shape[1:3])
    return net.join(torch.cat([f, y], 1))

def cropped(net, f): return f[..., 1:-1, 1:-1]

def padded(net, f): return F.pad(f, (1, 1, 1, 1))

def turned_back(net, f): return torch.stack([f, act('p4', 1, act('p4', 3, f))]).mean(0)

def normed(net, f): return (f - f.mean((1, 2, 3, 4), keepdim=True))/f.std()


def mlp(): return nn.Sequential(nn.Linear(C, 2*C), nn.GELU(), nn.Linear(2*C, C))

def dict_of(net, x):
    f = net.lift(x)
    return dict(out=net.pool(f), aux=[f.mean((3, 4)), (f.amax((2, 3, 4)),)])

def two_inputs(net, x, scale): return net.pool(net.lift(x))*scale[:, :, None, None]

SMALL = dict(heads=2, window=3)


# thirty equivariant networks, by name, with an input
one = torch.randn(2, 2, 8, 8)
odd = torch.randn(1, 2, 9, 9)
g6 = torch.randn(1, 2, 6, 6)
SOUND = {
    'plain': (Between(), one),
    'p4m': (Between(group='p4m'), odd),
    'mirror': (Between(flat, 'mirror'), torch.randn(1, 2, 6, 9)),
    'not square': (Between(residual, a=conv()), torch.randn(1, 2, 6, 9)),
    'residual': (Between(residual, a=conv()), one),
    'flat': (Between(flat), one), 'flat p4m': (Between(flat, 'p4m'), one),
    'einops': (Between(einops_flat), odd), 'folded': (Between(folded_poses), one),
    'channels last': (Between(channels_last, norm=nn.LayerNorm(C)), one),
    'tokens': (Between(tokens, mlp=mlp()), odd),
    'attention': (Between(attended, attention=nn.MultiheadAttention(C, 2, batch_first=True)),
                  g6),
    'by hand': (Between(by_hand, qkv=nn.Linear(C, 3*C)), g6),
    'gate': (Between(gated, se=SqueezeExcitation(C, 'p4')), one),
    'pose mean': (Between(pose_mean), one),
    'glu': (Between(glu, wide=GroupConv2d(C, 2*C, 1, 'p4')), one),
    'in place': (Between(in_place), one),
    'branches': (Between(branches, a=conv(), b=conv(k=1), join=conv(k=1, channels=3*C)), odd),
    'radius': (Between(radius, join=conv(k=1, channels=C + 1)), one),
    'down and up': (Between(down_and_up, a=conv(), pool=SpatialPool2d(2, 'p4'),
                            join=conv(channels=2*C)), one),
    'cropped': (Between(cropped), one), 'padded': (Between(padded), odd),
    'turned': (Between(turned_back), one), 'normed': (Between(normed), one),
    'dictionary': (Net(dict_of, lift=lift(), pool=GroupPool()), one),
    'two inputs': (Net(two_inputs, lift=lift(), pool=GroupPool()), (one, torch.randn(2, C))),
    'attentive': (nn.Sequential(lift(), AttentiveGroupConv2d(C, C, 3, 'p4', padding='same'),
                                GroupBatchNorm2d(C), GroupPool()), one),
    'e4': (nn.Sequential(lift('p4m'), E4Conv2d(C, C, 3, 'p4m'), GroupLayerNorm2d(C),
                         ProjectionConv2d(C, 3, 1, 'p4m')), g6),
    'self-attention': (nn.Sequential(lift(), GroupSelfAttention2d(C, C, 'p4', **SMALL),
                                     nn.Flatten(1, 2)), g6),
    'C8': (Between(flat, 'C8'), odd)}


# --- ten kinds of faults, and where they may stand

class PerPose(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(C, 4, 1, 1))

    def forward(self, f): return f*self.weight


class Permuted(nn.Module):
    "Poses in an order that is none of the group's."
    def forward(self, f): return f[:, :, [1, 0, 2, 3]]


class NotTurned(GroupConv2d):
    "The pose of the filter is taken, its turn is not."
    def filters(self):
        w = self.weight[:, :, self.group.relative]            # o i h q k k
        return rearrange(w, 'o i h q y x -> (o h) (i q) y x')


class LiftNotTurned(LiftingConv2d):
    def filters(self): return self.weight.repeat_interleave(4, 0)


class Positions(nn.Module):
    def __init__(self):
        super().__init__()
        self.pos = nn.Parameter(torch.randn(1, C, 1, 8, 8))

    def forward(self, f): return f + self.pos


def mixed(net, f): return f.reshape(len(f), 4, C, *f.shape[3:]).transpose(1, 2)

def mixed_by_view(net, f):
    y = f.permute(0, 2, 1, 3, 4).flatten(1, 2)                # poses first …
    return net.relu(y).unflatten(1, (C, 4))                   # … read as if they were last

def joined_wrongly(net, f):
    "Two maps joined pose by pose, and read as if joined channel by channel."
    return net.join(torch.stack([f, 2*f], 3).flatten(2, 3).reshape(len(f), 2*C, 4, *f.shape[3:]))

def grid(net, f):
    line = torch.linspace(-1, 1, f.shape[-1], dtype=f.dtype).expand(len(f), 1, 4, *f.shape[3:])
    return net.join(torch.cat([f, line], 1))

def over(kernel, **options):
    return lambda net, f: F.avg_pool2d(f.flatten(1, 2), kernel, **options).unflatten(1, (C, 4))


class Strided(nn.Sequential):
    "A network that halves by a stride of an innocent 1×1 convolution."
    def __init__(self, size=1):
        super().__init__(lift(), GroupConv2d(C, C, size, 'p4', stride=2, padding=size//2,
                                             strict=False), nn.ReLU(), conv())


def with_bn(net, f): return net.norm(f.flatten(1, 2)).unflatten(1, (C, 4))

def adaptive(net, f): return net.pool(f)


# thirty networks with one fault: kind, network, input, names that may be blamed
one = torch.randn(2, 2, 8, 8)
small = torch.randn(1, 2, 8, 8)
pool3 = nn.AdaptiveAvgPool3d((2, 4, 4))
FAULTY = [
    ('stride', Strided(), one, ['1']), ('stride', Strided(3), small, ['1']),
    ('stride', Between(over(1, stride=2)), one, ['avg_pool2d']),
    ('odd pool', Between(over(2)), odd, ['avg_pool2d']),
    ('odd pool', Between(lambda n, f: n.p(f.flatten(1, 2)).unflatten(1, (C, 4)),
                         p=nn.MaxPool2d(3, 2, 1)), one, ['p']),
    ('odd pool', Net(lambda n, x: n.fc(n.p(n.g(n.lift(x))).flatten(2).mean(-1)), lift=lift(),
                     g=GroupPool(), p=nn.AvgPool2d(2), fc=nn.Linear(C, 3)), odd, ['p']),
    ('positions', Between(lambda n, f: n.p(f), p=Positions()), one, ['p']),
    ('positions', Between(lambda n, f: f + n.pos, pos=nn.Parameter(torch.randn(8, 8))),
     one, ['add']),
    ('positions', Between(grid, join=conv(k=1, channels=C + 1)), one, ['cat']),
    ('per pose', Between(lambda n, f: n.scale(f), scale=PerPose()), one, ['scale']),
    ('per pose', Between(with_bn, norm=nn.BatchNorm2d(4*C)), one, ['norm']),
    ('per pose', Between(lambda n, f: f*n.s, s=nn.Parameter(torch.randn(4, 1, 1))),
     one, ['mul']),
    ('permutation', Between(lambda n, f: n.p(f), p=Permuted()), one, ['p']),
    ('permutation', Between(lambda n, f: f[:, :, [0, 2, 1, 3]]), one, ['getitem']),
    ('permutation', Between(lambda n, f: f.roll(1, 2), 'p4m'), one, ['roll']),
    ('no turn', nn.Sequential(lift(), NotTurned(C, C, 3, 'p4', padding=1), nn.ReLU(), conv()),
     one, ['1']),
    ('no turn', nn.Sequential(LiftNotTurned(2, C, 3, 'p4', padding=1), conv()), odd, ['0']),
    ('no turn', Between(lambda n, f: f.rot90(1, (-2, -1)).flip(-1)), one, ['flip', 'rot90']),
    ('mixed', Between(mixed), one, ['reshape', 'transpose']),
    ('mixed', Between(mixed_by_view), one, ['unflatten', 'flatten', 'permute']),
    ('mixed', Between(joined_wrongly, join=conv(k=1, channels=2*C)), one,
     ['reshape', 'flatten', 'stack']),
    ('slicing', Between(lambda n, f: f[..., ::2, ::2]), one, ['getitem']),
    ('slicing', Net(lambda n, x: n.pool(n.lift(x))[..., ::2, ::2], lift=lift(),
                    pool=GroupPool()), torch.randn(1, 2, 28, 28), ['getitem']),
    ('slicing', Between(lambda n, f: f[..., 1:, 1:]), odd, ['getitem']),
    ('padding', Between(lambda n, f: F.pad(f, (1, 0, 1, 0))), one, ['pad']),
    ('padding', Between(lambda n, f: n.p(f.flatten(1, 2)).unflatten(1, (C, 4)),
                        p=nn.ZeroPad2d((0, 1, 0, 1))), one, ['p']),
    ('padding', Net(lambda n, x: n.lift(F.pad(x, (0, 1, 0, 1))), lift=lift()), one, ['pad']),
    ('adaptive', Net(lambda n, x: n.p(n.lift(x)).flatten(1), lift=lift(), p=pool3), one, ['p']),
    ('adaptive', Between(lambda n, f: n.p(f).repeat_interleave(2, 2),
                         p=nn.AdaptiveMaxPool3d((2, 8, 8))), one, ['p']),
    ('adaptive', Net(lambda n, x: F.adaptive_avg_pool3d(n.lift(x), (2, 8, 8)), lift=lift()),
     one, ['adaptive_avg_pool3d'])]


# --- networks of others

class DoubleConv(nn.Sequential):
    def __init__(self, i, o):
        super().__init__(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(inplace=True))


class UNet(nn.Module):
    "A plain one with a transposed convolution."
    def __init__(self):
        super().__init__()
        self.down, self.pool = DoubleConv(2, 4), nn.MaxPool2d(2)
        self.middle, self.up = DoubleConv(4, 8), nn.ConvTranspose2d(8, 4, 2, stride=2)
        self.last, self.head = DoubleConv(8, 4), nn.Conv2d(4, 2, 1)

    def forward(self, x):
        a = self.down(x)
        y = self.up(self.middle(self.pool(a)))
        return self.head(self.last(torch.cat([a, y], 1)))


class ViT(nn.Module):
    "Patches, a class token, absolute positions, one block."
    def __init__(self, size=16, patch=4, dim=8):
        super().__init__()
        self.patches = nn.Conv2d(3, dim, patch, patch)
        self.token = nn.Parameter(torch.randn(1, 1, dim))
        self.positions = nn.Parameter(torch.randn(1, (size//patch)**2 + 1, dim))
        self.norm, self.attention = nn.LayerNorm(dim), nn.MultiheadAttention(dim, 2,
                                                                             batch_first=True)
        self.mlp, self.head = nn.Sequential(nn.Linear(dim, dim), nn.GELU()), nn.Linear(dim, 5)

    def forward(self, x):
        t = self.patches(x).flatten(2).transpose(1, 2)
        t = torch.cat([self.token.expand(len(t), -1, -1), t], 1) + self.positions
        z = self.norm(t)
        t = t + self.attention(z, z, z, need_weights=False)[0]
        return self.head((t + self.mlp(t))[:, 0])


class FlatConv(nn.Module):
    "A group convolution of flattened fields `(b, c·4, h, w)`, as escnn and GrouPy lay them out."
    def __init__(self, i, o):
        super().__init__()
        self.inner = GroupConv2d(i, o, 3, 'p4', padding='same')

    def forward(self, x): return self.inner(x.unflatten(1, (-1, 4))).flatten(1, 2)


def flat_model():
    "A model on flattened fields with a norm that knows the poses."
    return nn.Sequential(FlatConv(2, 4), nn.BatchNorm2d(16), nn.ReLU(), FlatConv(4, 4))


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = LiftingConv2d(3, C, 3, 'p4', padding='same')
        self.stage = nn.Sequential(conv(), nn.ReLU())

    def forward(self, x):
        low = self.stem(x)
        return dict(low=low, high=self.stage(low).mean(2))


class Segmenter(nn.Module):
    "A head on a backbone that gives a dictionary; its last convolution is a plain one."
    def __init__(self):
        super().__init__()
        self.backbone, self.head = Backbone(), nn.Conv2d(C, 2, 3, padding=1)

    def forward(self, x):
        features = self.backbone(x)
        out = F.interpolate(self.head(features['high']), size=x.shape[-2:], mode='bilinear')
        return dict(out=out, low=features['low'])


def resnet18(): return torchvision.models.resnet18(num_classes=5)
