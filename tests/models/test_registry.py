"The register of networks: names, what is refused, and that it is whole."
import subprocess
import sys

import pytest

from eqtutor.models import MODELS, build_model, get_model, model_rows, register_model
from eqtutor.models.group_cnn import p4_cnn
from eqtutor.models.registry import rounds_to

FAMILIES = {'z2-cnn', 'p4m-resnet18', 'alpha-F-p4-cnn', 'z2-resnet29-asc', 'gsa-r4', 'p4-e4-net'}


def test_importing_the_package_registers_all_networks():
    "In a fresh process, with the package alone; the command adds none."
    code = ('from eqtutor.models import MODELS; print(*MODELS); '
            'import eqtutor.cli; print(*MODELS)')
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    first, second = map(str.split, done.stdout.splitlines())
    assert first == second and len(first) == 71 and set(first) >= FAMILIES


def test_case_and_dashes_do_not_matter():
    assert get_model('p4cnn').name == 'p4-cnn'
    assert get_model('P4M_All-CNN').input_shape == (3, 32, 32)
    assert get_model('p4-densenet').input_shape == (3, 96, 96)


def test_unknown_name_gets_a_hint_and_the_list():
    with pytest.raises(ValueError, match="did you mean 'p4-all-cnn'"): get_model('p4-alcnn')
    with pytest.raises(ValueError, match="unknown network 'vgg'.*`eqtutor models` lists all 71"):
        get_model('vgg')


def test_arguments_reach_the_network():
    size = sum(p.numel() for p in build_model('p4-cnn', classes=2).parameters())
    assert size == 24_610 - 16*4*10*8


def test_another_network_of_the_same_name_is_refused():
    with pytest.raises(ValueError, match='another network'):
        register_model('p4-cnn', p4_cnn, 'rot-MNIST', '1K', 1000, 'here')
    assert MODELS['p4-cnn'].exact == 24_610


def test_the_same_entry_again_is_fine():
    before = MODELS['p4-cnn']
    register_model('p4-cnn', p4_cnn, 'rot-MNIST', '24.61K', 24_610, 'P1 Table 1')
    assert MODELS['p4-cnn'] == before


def test_unknown_data_are_refused():
    with pytest.raises(ValueError, match="data must be 'rot-MNIST', .* or 'PCam', got 'ImageNet'"):
        register_model('new', p4_cnn, 'ImageNet', '1K', 1000, 'here')
    assert 'new' not in MODELS


def test_printed_counts_are_read_as_printed():
    printed = '1.37M', '1371K', '1.4M', '1.38M'
    assert [rounds_to(1_370_996, p) for p in printed] == [True, True, True, False]


def test_every_network_has_its_exact_count_but_those_whose_published_norm_is_not_equivariant():
    "P4's code has a scale for each pose in one norm a layer; ours shares it, and counts less."
    others = {row['name']: row['difference'] for row in model_rows() if row['difference']}
    assert others.keys() == {name for name in MODELS if '-e4-' in name}
    assert all(difference < 0 for difference in others.values())
