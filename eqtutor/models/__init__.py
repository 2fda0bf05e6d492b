"The networks of the papers, by class and by name: `build_model('p4-cnn')`."
# Plain module: edited by hand, no notebook exports it.
from eqtutor.models.registry import (MODELS, Model, build_model, get_model, model_rows,
                                     register_model)
from eqtutor.models import backbones  # isort: skip  # each family registers its networks
from eqtutor.nn import affine, attentive, e4, self_attention  # isort: skip

__all__ = ['MODELS', 'Model', 'build_model', 'get_model', 'model_rows', 'register_model']
