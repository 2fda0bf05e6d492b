"The networks of the papers, by class and by name: `build_model('p4-cnn')`."
# Plain module: edited by hand, no notebook exports it.
from . import affine, attentive, backbones, e4, self_attention, unet
from .registry import MODELS, Model, build_model, get_model, model_rows, register_model

__all__ = ['MODELS', 'Model', 'affine', 'attentive', 'backbones', 'build_model', 'e4', 'get_model',
           'model_rows', 'register_model', 'self_attention', 'unet']
