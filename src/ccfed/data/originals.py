"""The data sets that are known by name: which original files they consist of, with checksums and addresses."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ccfed.data.formats import Arrays, cifar_binary, cifar_python, idx_set
from ccfed.data.inputs import Inputs


@dataclass(frozen=True)
class Download:
    """A file at its original address: its checksum ("md5:..." or "sha256:...") and size in bytes."""

    address: str
    checksum: str
    size: int

    @property
    def file(self) -> str:
        """The file's name."""
        return self.address.rsplit("/", 1)[1]


@dataclass(frozen=True)
class Version:
    """One form in which a data set's original files come.

    `files` maps their names to the checksums of their contents (of a .gz file: of what is inside, so that files
    compressed anew are recognised). They lie in one of `folders`, or inside one of the tar `archives`.
    """

    files: Mapping[str, str]
    decode: Callable[[Mapping[str, bytes]], Arrays]
    folders: tuple[str, ...]
    archives: tuple[str, ...] = ()


@dataclass(frozen=True)
class Original:
    """A data set that is known by name, in one or more versions, all of which decode to the same samples."""

    name: str
    title: str
    classes: tuple[str, ...]
    inputs: Inputs
    versions: tuple[Version, ...]
    downloads: tuple[Download, ...]
    system_folders: tuple[str, ...] = ()

    def mirrored(self, address: str) -> "Original":
        """This data set, downloaded from below `address` instead of the original one; the checksums stay."""
        downloads = (replace(item, address=f"{address.rstrip('/')}/{item.file}") for item in self.downloads)
        return replace(self, downloads=tuple(downloads))


FASHION = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"
CIFAR = "https://www.cs.toronto.edu/~kriz"

FMNIST = Original(
    name="fmnist",
    title="Fashion-MNIST",
    classes=(
        *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
        *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
    ),
    inputs=Inputs(scale=1 / 255, mean=(0.5,), std=(0.5,)),
    versions=(
        Version(
            files={
                "train-images-idx3-ubyte": "sha256:c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
                "train-labels-idx1-ubyte": "sha256:bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
                "t10k-images-idx3-ubyte": "sha256:5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
                "t10k-labels-idx1-ubyte": "sha256:0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
            },
            decode=idx_set,
            folders=("fmnist", "fashion-mnist", "FashionMNIST/raw", "."),
        ),
    ),
    downloads=(
        Download(f"{FASHION}/train-images-idx3-ubyte.gz", "md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d", 26421880),
        Download(f"{FASHION}/train-labels-idx1-ubyte.gz", "md5:25c81989df183df01b3e8a0aad5dffbe", 29515),
        Download(f"{FASHION}/t10k-images-idx3-ubyte.gz", "md5:bef4ecab320f06d8554ea6380940ec79", 4422102),
        Download(f"{FASHION}/t10k-labels-idx1-ubyte.gz", "md5:bb300cfdad3c16e7a12a480ee83cd310", 5148),
    ),
    system_folders=("/usr/share/datasets/fashion-mnist", "/usr/local/share/datasets/fashion-mnist"),
)

CIFAR10 = Original(
    name="cifar10",
    title="CIFAR-10",
    classes=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    inputs=Inputs(scale=1 / 255, mean=(0.4914, 0.4822, 0.4465), std=(0.2023, 0.1994, 0.2010), crop=4, flip=True),
    versions=(
        Version(
            files={
                "data_batch_1.bin": "sha256:cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
                "data_batch_2.bin": "sha256:a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
                "data_batch_3.bin": "sha256:bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
                "data_batch_4.bin": "sha256:014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
                "data_batch_5.bin": "sha256:755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
                "test_batch.bin": "sha256:8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
            },
            decode=cifar_binary,
            folders=("cifar-10-batches-bin", "cifar10/cifar-10-batches-bin", "cifar10", "."),
            archives=("cifar-10-binary.tar.gz", "cifar10/cifar-10-binary.tar.gz"),
        ),
        Version(
            files={
                "data_batch_1": "md5:c99cafc152244af753f735de768cd75f",
                "data_batch_2": "md5:d4bba439e000b95fd0a9bffe97cbabec",
                "data_batch_3": "md5:54ebc095f3ab1f0389bbae665268c751",
                "data_batch_4": "md5:634d18415352ddfa80567beed471001a",
                "data_batch_5": "md5:482c414d41f54cd18b22e5b47cb7c3cb",
                "test_batch": "md5:40351d587109b95175f43aff81a1287e",
            },
            decode=cifar_python,
            folders=("cifar-10-batches-py", "cifar10/cifar-10-batches-py", "cifar10", "."),
            archives=("cifar-10-python.tar.gz", "cifar10/cifar-10-python.tar.gz"),
        ),
    ),
    downloads=(Download(f"{CIFAR}/cifar-10-binary.tar.gz", "md5:c32a1d4ab5d03f1284b67883e8d87530", 170052171),),
)

CIFAR100 = Original(
    name="cifar100",
    title="CIFAR-100",
    classes=tuple(
        """apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can
        castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin
        elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster
        man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck
        pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk
        skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank telephone television tiger
        tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm""".split()  # noqa: SIM905
    ),
    inputs=Inputs(scale=1 / 255, mean=(0.507, 0.487, 0.441), std=(0.267, 0.256, 0.276), crop=4, flip=True),
    versions=(
        Version(
            files={
                "train.bin": "sha256:f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29",
                "test.bin": "sha256:d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a",
            },
            decode=cifar_binary,
            folders=("cifar-100-binary", "cifar100/cifar-100-binary", "cifar100", "."),
            archives=("cifar-100-binary.tar.gz", "cifar100/cifar-100-binary.tar.gz"),
        ),
        Version(
            files={
                "train": "md5:16019d7e3df5f24257cddd939b257f8d",
                "test": "md5:f0ef6b0ae62326f3e7ffdfab6717acfc",
            },
            decode=cifar_python,
            folders=("cifar-100-python", "cifar100/cifar-100-python", "cifar100", "."),
            archives=("cifar-100-python.tar.gz", "cifar100/cifar-100-python.tar.gz"),
        ),
    ),
    downloads=(Download(f"{CIFAR}/cifar-100-binary.tar.gz", "md5:03b5dce01913d631647c71ecec9e9cb8", 168513733),),
)

ORIGINALS: Mapping[str, Original] = {original.name: original for original in (FMNIST, CIFAR10, CIFAR100)}
"""The data sets that `load` knows by name, besides the embedded digits."""
