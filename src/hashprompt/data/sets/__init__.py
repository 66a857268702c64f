"""The published benchmarks by name."""

from hashprompt.data.sets.base import DataSet, data_root
from hashprompt.data.sets.cifar import CIFAR100_COARSE, SPLIT_CIFAR100
from hashprompt.data.sets.core50 import CORE50
from hashprompt.data.sets.cub import SPLIT_CUB200, SPLIT_CUB200_LAMDA
from hashprompt.data.sets.five import FIVE_DATASETS
from hashprompt.data.sets.imagenet_r import SPLIT_IMAGENET_R
from hashprompt.data.sets.tiny_imagenet import SPLIT_TINY_IMAGENET

SETS: dict[str, DataSet] = {
    data.name: data
    for data in (
        SPLIT_CIFAR100,
        SPLIT_IMAGENET_R,
        SPLIT_CUB200,
        SPLIT_CUB200_LAMDA,
        FIVE_DATASETS,
        CORE50,
        SPLIT_TINY_IMAGENET,
        CIFAR100_COARSE,
    )
}
__all__ = ["SETS", "DataSet", "data_root"]
