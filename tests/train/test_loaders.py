"Loaders and augmentation: what they refuse, and pixels that come in from outside."
import pytest
import torch

from eqtutor.actions import rotate
from eqtutor.train import AUGMENTATIONS, Augment, ImageSet, TensorLoader, digits, get_loader


@pytest.fixture
def colour():
    torch.manual_seed(0)
    mean, std = torch.tensor([.5, .4, .3]), torch.tensor([.2, .3, .2])
    return ImageSet(torch.randn(40, 3, 8, 8), torch.arange(40), mean, std)


def test_batch_size_of_at_least_one():
    with pytest.raises(ValueError, match='at least 1, got 0'): TensorLoader(digits('valid'), 0)


def test_loader_by_the_name_of_an_augmentation(colour):
    loader = get_loader(colour, augment='P2')
    assert type(loader) is TensorLoader and loader.augment is AUGMENTATIONS['P2']
    with pytest.raises(ValueError, match='augment must be one of none, P2'):
        get_loader(colour, augment='cifar')


@pytest.mark.parametrize('bad', [dict(turned='half'), dict(shift=-1)], ids=str)
def test_refused_augmentations(bad):
    with pytest.raises(ValueError, match='must be'): Augment(**bad)


def test_quarter_turns_need_squares():
    quarter = AUGMENTATIONS['p4']
    with pytest.raises(ValueError, match='must be square, got 4×6'):
        quarter(torch.zeros(9, 1, 4, 6), quarter.draw(9, 0, 0))


@pytest.mark.parametrize('name', AUGMENTATIONS)
def test_augmenting_leaves_its_input(colour, name):
    augment, x = AUGMENTATIONS[name], colour.tensors[0]
    before, draws = x.clone(), augment.draw(40, 1, 2)
    assert augment(x, draws, colour.black).shape == augment(x, draws).shape == x.shape
    assert torch.equal(x, before)


def test_free_turns_leave_black_outside(colour):
    "Zero would come in otherwise, which is not black once an image is normalised."
    augment, x = AUGMENTATIONS['turn'], colour.tensors[0]
    draws, black = augment.draw(40, 0, 0), colour.black.view(3, 1, 1)
    expected = rotate(x - black, draws[:, 3]) + black
    torch.testing.assert_close(augment(x, draws, colour.black), expected)
    flat = black.expand(40, 3, 8, 8)
    torch.testing.assert_close(augment(flat, draws, colour.black), flat)
