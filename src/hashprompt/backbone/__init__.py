"""The frozen vision transformer: weights in, injection sites, features out."""

from hashprompt.backbone.vit import Backbone, Injection
from hashprompt.backbone.weights import Preprocessing, available_backbones, load_backbone

__all__ = ["Backbone", "Injection", "Preprocessing", "available_backbones", "load_backbone"]
