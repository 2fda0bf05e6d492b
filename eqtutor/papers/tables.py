"""The tables of the papers' test errors, as printed: what `eqtutor reproduce` runs and what the
chapter on results shows."""
# Plain module: edited by hand, no notebook exports it.
from dataclasses import dataclass
from typing import NamedTuple

from ..models.e4 import E4_ABLATIONS
from ..train.settings import Training


class Row(NamedTuple):
    "A line of a table."
    label:str    # the paper's
    network:str  # of `MODELS`
    printed:str  # test error in per cent, with the spread where there is one


@dataclass(frozen=True)
class ResultTable:
    "A paper's table, or the part of it that has one data set and one recipe."
    name:str        # paper and table, as 'P1.1'; parts of one table share it
    data:str        # of `DATASETS`
    recipe:str      # of `RECIPES`
    rows:list[Row]
    augment:str='none'  # of `AUGMENTATIONS`, where it is not the recipe's
    runs:int|None=None  # behind a printed mean with its deviation; None where there is none

    def training(self,
        row:Row,
        seed:int=0,
    )->Training:
        "The settings of a row's full recipe."
        augment = None if self.augment == 'none' else self.augment
        return Training.read(None, self.recipe, network=row.network, data=self.data,
                             augment=augment, seed=seed)


ABLATION_ERRORS = {
    'none': '4.10 ± 0.085', 'only-K': '1.96 ± 0.045', 'only-V': '1.52 ± 0.036',
    's1': '1.45 ± 0.022', 's4': '1.24 ± 0.026', 'r2': '1.33 ± 0.026', 'r4': '1.37 ± 0.025',
    'k3': '1.46 ± 0.031', 'k7': '1.27 ± 0.021'}


def ablation_rows(
    *names:str, # of `E4_ABLATIONS`
)->list[Row]:
    "E4-Net with one thing changed, labelled by what is changed."
    changes = {name: E4_ABLATIONS[name].change.items() for name in names}
    labels = {name: ', '.join(f'{k} = {v}' for k, v in change)
              for name, change in changes.items()}
    return [Row(labels[name], f'p4-e4-net-{name}', ABLATION_ERRORS[name]) for name in names]


RESULT_TABLES = [
    ResultTable('P1.1', 'rotmnist', 'P1 rotMNIST', [
        Row('Z2-CNN', 'z2-cnn', '5.03'),
        Row('p4-CNN', 'p4-cnn', '2.048 ± 0.045'),
        Row('BIG11-p4-CNN', 'p4-cnn-big11', '1.996 ± 0.083'),
        Row('BIG15-p4-CNN', 'p4-cnn-big15', '1.848 ± 0.019'),
        Row('BIG19-p4-CNN', 'p4-cnn-big19', '1.796 ± 0.035'),
        Row('α_RH-p4-CNN', 'alpha-RH-p4-cnn', '1.980 ± 0.032'),
        Row('α_F-p4-CNN', 'alpha-F-p4-cnn', '1.795 ± 0.028'),
        Row('α_CH-p4-CNN', 'alpha-CH-p4-cnn', '1.825 ± 0.048'),
        Row('α_SP-p4-CNN', 'alpha-SP-p4-cnn', '1.761 ± 0.027'),
        Row('α-p4-CNN', 'alpha-p4-cnn', '1.696 ± 0.021')], runs=5),
    ResultTable('P3.2', 'rotmnist', 'P3 rotMNIST', [
        Row('Z2_SA', 'gsa-z2', '3.63'),
        Row('R4_SA', 'gsa-r4', '2.54'),
        Row('R8_SA', 'gsa-r8', '2.10'),
        Row('R12_SA', 'gsa-r12', '2.03'),
        Row('R16_SA', 'gsa-r16', '2.34')]),
    ResultTable('P4.1', 'rotmnist', 'P4 rotMNIST', [
        Row('E⁴-Net', 'p4-e4-net', '1.29 ± 0.023'),
        Row('E⁴-Net (Large)', 'p4-e4-net-large', '1.17 ± 0.019')], runs=5),
    ResultTable('P4.2', 'rotmnist', 'P4 rotMNIST', ablation_rows('none', 'only-K', 'only-V'),
                runs=5),
    ResultTable('P4.3', 'rotmnist', 'P4 rotMNIST',
                ablation_rows('s1', 's4', 'r2', 'r4', 'k3', 'k7'), runs=5),
    ResultTable('P1.2', 'cifar10', 'P1 All-CNN', [
        Row('All-CNN p4', 'p4-all-cnn', '9.32'),
        Row('All-CNN α_F-p4', 'alpha-F-p4-all-cnn', '8.8'),
        Row('All-CNN p4m', 'p4m-all-cnn', '7.61'),
        Row('All-CNN α_F-p4m', 'alpha-F-p4m-all-cnn', '6.93')]),
    ResultTable('P1.2', 'cifar10', 'P1 ResNet44', [
        Row('ResNet44 p4m', 'p4m-resnet44', '15.72'),
        Row('ResNet44 α_F-p4m', 'alpha-F-p4m-resnet44', '10.82')]),
    ResultTable('P1.2+', 'cifar10', 'P1 All-CNN', [
        Row('All-CNN p4', 'p4-all-cnn', '8.91'),
        Row('All-CNN α_F-p4', 'alpha-F-p4-all-cnn', '7.05'),
        Row('All-CNN p4m', 'p4m-all-cnn', '7.48'),
        Row('All-CNN α_F-p4m', 'alpha-F-p4m-all-cnn', '6.53')], 'cifar+'),
    ResultTable('P1.2+', 'cifar10', 'P1 ResNet44', [
        Row('ResNet44 p4m', 'p4m-resnet44', '15.4'),
        Row('ResNet44 α_F-p4m', 'alpha-F-p4m-resnet44', '10.12')], 'cifar+'),
    ResultTable('P2.2', 'cifar10', 'P2 ResNet29', [
        Row('ResNet29', 'z2-resnet29', '8.82 ± 0.34'),
        Row('ResNet29 + SE', 'z2-resnet29-se', '8.61 ± 0.15'),
        Row('p4ResNet29', 'p4-resnet29', '6.98 ± 0.16'),
        Row('p4ResNet29 + SE', 'p4-resnet29-se', '6.76 ± 0.17'),
        Row('ResNet29 + SASA', 'z2-resnet29-sasa', '10.57 ± 0.40'),
        Row('ResNet29 + Simple_ASC', 'z2-resnet29-simple-asc', '8.99 ± 0.24'),
        Row('ResNet29 + ASC', 'z2-resnet29-asc', '8.76 ± 0.32'),
        Row('ResNet29 + ASC + SE', 'z2-resnet29-asc-se', '8.79 ± 0.11'),
        Row('p4ResNet29 + ASC', 'p4-resnet29-asc', '6.97 ± 0.25')], runs=8),
    ResultTable('P2.1', 'cifar100', 'P2 ResNet29', [
        Row('ResNet29', 'z2-resnet29-cifar100', '31.66 ± 0.38'),
        Row('ResNet29 + Simple_ASC', 'z2-resnet29-simple-asc-cifar100', '31.60 ± 0.78'),
        Row('ResNet29 + ASC', 'z2-resnet29-asc-cifar100', '31.32 ± 0.77'),
        Row('p4ResNet29', 'p4-resnet29-cifar100', '27.97 ± 0.46'),
        Row('p4ResNet29 + SE', 'p4-resnet29-se-cifar100', '27.97 ± 0.45'),
        Row('p4ResNet29 + ASC', 'p4-resnet29-asc-cifar100', '27.29 ± 0.51')], runs=8),
    ResultTable('P3.2', 'cifar10', 'P3 CIFAR', [
        Row('Z2_SA', 'gsa-z2-cifar10', '17.7'),
        Row('Z2M_SA', 'gsa-mirror-cifar10', '16.28')]),
    ResultTable('P4.4', 'cifar10', 'P4 CIFAR', [
        Row('R18', 'z2-resnet18', '9.7 ± 0.43'),
        Row('p4-R18', 'p4-resnet18', '7.53 ± 0.21'),
        Row('p4-E⁴R18', 'p4-e4-resnet18', '6.42 ± 0.14'),
        Row('p4m-R18', 'p4m-resnet18', '5.83 ± 0.17'),
        Row('p4m-E⁴R18', 'p4m-e4-resnet18', '4.96 ± 0.16')], runs=5),
    ResultTable('P4.4', 'cifar100', 'P4 CIFAR', [
        Row('R18', 'z2-resnet18-cifar100', '34 ± 0.76'),
        Row('p4-R18', 'p4-resnet18-cifar100', '27.96 ± 0.56'),
        Row('p4-E⁴R18', 'p4-e4-resnet18-cifar100', '26.59 ± 0.36'),
        Row('p4m-R18', 'p4m-resnet18-cifar100', '24.95 ± 0.42'),
        Row('p4m-E⁴R18', 'p4m-e4-resnet18-cifar100', '22.18 ± 0.46')], runs=5),
    ResultTable('P1.3', 'pcam', 'P1 PCam', [
        Row('DenseNet Z2', 'z2-densenet', '15.93'),
        Row('DenseNet p4', 'p4-densenet', '12.45'),
        Row('DenseNet α_F-p4', 'alpha-F-p4-densenet', '11.34'),
        Row('DenseNet p4m', 'p4m-densenet', '11.64'),
        Row('DenseNet α_F-p4m', 'alpha-F-p4m-densenet', '10.88')]),
    ResultTable('P3.2', 'pcam', 'P3 PCam', [
        Row('Z2_SA', 'gsa-z2-pcam', '16.96'),
        Row('R4_SA', 'gsa-r4-pcam', '16.56'),
        Row('R8_SA', 'gsa-r8-pcam', '16.42'),
        Row('R4M_SA', 'gsa-p4m-pcam', '15.24')])]


def chosen_tables(
    names:list[str], # as 'P1.1'; all if empty
)->list[ResultTable]:
    "The tables, or parts of them, of these names; an error that lists all if one is unknown."
    known = list(dict.fromkeys(table.name for table in RESULT_TABLES))
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f'unknown table {", ".join(unknown)}. Known are {", ".join(known)}.')
    return [table for table in RESULT_TABLES if not names or table.name in names]
