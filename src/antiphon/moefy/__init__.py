"""A dense model's MLPs cut into experts: a mixture with real weights, made from any checkpoint."""

from .balanced_clusters import balanced_clusters
from .expert_split import ExpertSplit, split_mlp
from .mixture_folder import moefy
from .mixture_spec import mixture_spec

__all__ = ["ExpertSplit", "balanced_clusters", "mixture_spec", "moefy", "split_mlp"]
