"""The published benchmarks as data: where their files come from, how they lie, how many images.

Nothing heavy is imported for them; the module that reads a set is named, and imported on use.
"""

from hashprompt.data.reading.options import HOLD_OUT
from hashprompt.data.sets.base import DataSet, PublishedFile

CIFAR100_FILE = PublishedFile(
    "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
    md5="eb9058c3a382ffc7106e4002c42a8d85",
    size=169_001_437,
    gives="cifar-100-python",
)
CIFAR10_FILE = PublishedFile(
    "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
    md5="c58f30108f718f92721af3b95e74349a",
    size=170_498_071,
    gives="cifar-10-batches-py",
)
CIFAR_LICENCE = "none stated; the authors ask to be cited"
SPLIT_CIFAR100 = DataSet(
    "split-cifar100",
    "CIFAR-100, 100 classes in 10 tasks (tasks=20 or 50 for the longer ones)",
    "cifar:load_cifar100",
    (CIFAR100_FILE,),
    "cifar-100-python/{train,test,meta}",
    CIFAR_LICENCE,
    (50_000, 10_000),
    coarse=True,
)
CIFAR100_COARSE = DataSet(
    "cifar100-coarse",
    "CIFAR-100's 20 superclasses, domain-incremental: a fine class of each in 5 tasks",
    "cifar:load_coarse",
    (CIFAR100_FILE,),
    SPLIT_CIFAR100.layout,
    CIFAR_LICENCE,
    (50_000, 10_000),
    coarse=True,
)

SPLIT_IMAGENET_R = DataSet(
    "split-imagenet-r",
    "ImageNet-R, 200 classes in renditions, 10 tasks",
    "photo_sets:load_imagenet_r",
    (
        PublishedFile(
            "https://people.eecs.berkeley.edu/~hendrycks/imagenet-r.tar",
            md5="a61312130a589d0ca1a8fca1f2bd3337",
            sha256="18c6bf493b39a0d975d48e587437f562caab9c52ae6327dcfa9dd8eb54aa1b52",
            size=2_191_079_936,
            gives="imagenet-r",
        ),
    ),
    "imagenet-r/<wnid>/*.jpg, and for split=coda-yaml the lists imagenet-r_train.yaml, "
    "imagenet-r_test.yaml",
    "repository MIT; the images keep their owners' rights",
    (24_000, 6_000),
    ("coda-yaml", HOLD_OUT, "folders"),
)

CUB_LICENCE = "images from the web, for non-commercial research and education"
SPLIT_CUB200 = DataSet(
    "split-cub200",
    "CUB-200-2011, 200 species of birds, 10 tasks, official split",
    "photo_sets:load_cub",
    (
        PublishedFile(
            "https://data.caltech.edu/records/65de6-vp158/files/CUB_200_2011.tgz",
            md5="97eceeb196236b17998738112f37df78",
            size=1_150_585_339,
            gives="CUB_200_2011",
        ),
    ),
    "CUB_200_2011/images/<class>/*.jpg and CUB_200_2011/{images.txt,image_class_labels.txt,"
    "train_test_split.txt,classes.txt}",
    CUB_LICENCE,
    (5_994, 5_794),
    ("official", "lamda"),
)
SPLIT_CUB200_LAMDA = DataSet(
    "split-cub200-lamda",
    "the same birds with the split of the RevisitingCIL archive, which you supply",
    "photo_sets:load_cub_lamda",
    (),
    "cub/{train,test}/<class>/*.jpg, from the archive that the RevisitingCIL "
    "repository (github.com/zhoudw-zdw/RevisitingCIL) links to",
    CUB_LICENCE,
    (9_430, 2_358),
)


def _idx_files(
    base: str, folder: str, sums: tuple[str, ...], sizes: tuple[int, ...]
) -> list[PublishedFile]:
    names = [
        f"{part}-{what}-ubyte.gz"
        for part in ("train", "t10k")
        for what in ("images-idx3", "labels-idx1")
    ]
    return [
        PublishedFile(base + name, md5, size=size, into=folder, gives=f"{folder}/{name[:-3]}")
        for name, md5, size in zip(names, sums, sizes, strict=True)
    ]


SVHN_ADDRESS = "http://ufldl.stanford.edu/housenumbers/"
FIVE_DATASETS = DataSet(
    "5-datasets",
    "SVHN, MNIST, CIFAR-10, notMNIST, Fashion-MNIST, in this order, ten classes each",
    "five:load_five",
    (
        PublishedFile(
            f"{SVHN_ADDRESS}train_32x32.mat",
            md5="e26dedcc434d2e4c54c9b2d4a06d8373",
            size=182_040_794,
        ),
        PublishedFile(
            f"{SVHN_ADDRESS}test_32x32.mat",
            md5="eb5a983be6a315427106f1b164d9cef3",
            size=64_275_384,
        ),
        *_idx_files(
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "MNIST/raw",
            (
                "f68b3c2dcbeaaa9fbdd348bbdeb94873",
                "d53e105ee54ea40749a09fcbcd1e9432",
                "9fb629c4189551a2d022fa330f9573f3",
                "ec29112dd5afa0611ce80d1b7f02629c",
            ),
            (9_912_422, 28_881, 1_648_877, 4_542),
        ),
        CIFAR10_FILE,
        PublishedFile(
            "https://zenodo.org/records/8274268/files/notMNIST_small.zip?download=1",
            md5="3de91fb69221d9c2d5c57387101ebc6c",
            gives="notMNIST_small",
        ),
        *_idx_files(
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            "FashionMNIST/raw",
            (
                "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
                "25c81989df183df01b3e8a0aad5dffbe",
                "bef4ecab320f06d8554ea6380940ec79",
                "bb300cfdad3c16e7a12a480ee83cd310",
            ),
            (26_421_880, 29_515, 4_422_102, 5_148),
        ),
    ),
    "{train,test}_32x32.mat, MNIST/raw/*, cifar-10-batches-py/*, notMNIST/{Train,Test}/<A-J>/*.png "
    "(or notMNIST_small/<A-J>/*.png), FashionMNIST/raw/*; or an .npz file for any of them "
    "(svhn*.npz, mnist*.npz, cifar10*.npz, notmnist*.npz, fashion_mnist*.npz)",
    "SVHN for non-commercial use, MNIST CC BY-SA 3.0, Fashion-MNIST MIT; the others state none",
)

CORE50 = DataSet(
    "core50",
    "CORe50, 50 objects, domain-incremental: 8 sessions to learn, 3 others as one test set",
    "photo_sets:load_core50",
    (
        PublishedFile(
            "http://bias.csr.unibo.it/maltoni/download/core50/core50_128x128.zip",
            md5="745f3373fed08d69343f1058ee559e13",
            gives="core50_128x128",
        ),
        PublishedFile(
            "https://vlomonaco.github.io/core50/data/batches_filelists.zip",
            md5="e3297508a8998ba0c99a83d6b36bde62",
            gives="batches_filelists",
        ),
    ),
    "core50_128x128/s<1-11>/o<1-50>/*.png, and for domain_order=ni-run-N the lists "
    "batches_filelists/NI_inc/run<N>/*.txt",
    "CC BY 4.0",
    (119_894, 44_972),
)

SPLIT_TINY_IMAGENET = DataSet(
    "split-tiny-imagenet",
    "Tiny-ImageNet, 200 classes of 64 px, 10 tasks, tested on its validation images",
    "photo_sets:load_tiny_imagenet",
    (
        PublishedFile(
            "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
            md5="90528d7ca1a48142e341f4ef8d21d0de",
            size=248_100_043,
            gives="tiny-imagenet-200",
        ),
    ),
    "tiny-imagenet-200/train/<wnid>/images/*.JPEG and tiny-imagenet-200/val/images with "
    "val_annotations.txt "
    "(or {train,val}/<wnid>/*.JPEG)",
    "ImageNet's terms: non-commercial research and education",
    (100_000, 10_000),
)

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
