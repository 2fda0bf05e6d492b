"""What every answer finds: torch, nn, F, math, and what chapters 01 to 06 export."""
# Plain module: edited by hand, no notebook exports it. The sandbox's process imports it.
# mypy: ignore-errors
# ruff: noqa: F401
import itertools
import math
import random

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from eqtutor.actions import *
from eqtutor.core import *
from eqtutor.equivariance import *
from eqtutor.groups import *
from eqtutor.nn.convolution import *
from eqtutor.nn.layers import *
