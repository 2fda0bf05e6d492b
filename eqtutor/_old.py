"Names of the first edition that chapters 21 to 24 still use while they are rewritten."
# Plain module: edited by hand, no notebook exports it.
import torch
from torch import Tensor, nn

from eqtutor.core import filter_index as _moved_index  # noqa: F401
from eqtutor.nn.convolution import EquivariantConv2d as _EquivariantConv2d  # noqa: F401


class _Tables(nn.Module):
    def _tables(self)->dict[str, Tensor]: raise NotImplementedError

    def _make_tables(self)->None:
        with torch.inference_mode(False), torch.device('cpu'): tables = self._tables()
        for name, t in tables.items(): setattr(self, name, t.to(next(self.parameters()).device))

    def _apply(self, fn, recurse=True):
        super()._apply(fn, recurse)
        self._make_tables()
        return self
