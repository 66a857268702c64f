"""Linear probe of the pretrained nano backbone against the same architecture untrained."""

import argparse
import json
from pathlib import Path

import torch
from safetensors import safe_open
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from hashprompt.data.dataset import ImageSource
from hashprompt.data.streams.embedded import digits, glyphs, glyphs_domains

ASSET = Path(__file__).parents[1] / "src" / "hashprompt" / "assets" / "nano.safetensors"


def load(path: Path, pretrained: bool) -> nn.Module:
    """The architecture named in the file, with or without its weights."""
    with safe_open(path, framework="pt") as file:
        architecture = json.loads(file.metadata()["architecture"])
        weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    torch.manual_seed(0)
    model = VisionTransformer(**architecture, num_classes=0)
    if pretrained:
        model.load_state_dict(weights)
    return model.eval()


@torch.no_grad()
def features(model: nn.Module, images: Tensor) -> Tensor:
    """Class token after the last norm, (N, D), of uint8 images (N, 3, 32, 32)."""
    return torch.cat([model(part.float() / 127.5 - 1) for part in images.split(256)])


def probe(model: nn.Module, source: ImageSource) -> float:
    """Test accuracy of a linear classifier on frozen features, in percent."""
    classifier = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=300))
    classifier.fit(features(model, source.train.images).numpy(), source.train.labels.numpy())
    test = features(model, source.test.images).numpy()
    return 100 * classifier.score(test, source.test.labels.numpy())


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", type=Path, default=ASSET)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    trained, untrained = load(args.weights, True), load(args.weights, False)
    print("| source | classes | random weights | pretrained |")
    print("|---|---|---|---|")
    for source in (digits(), glyphs(), glyphs_domains()):
        before, after = probe(untrained, source), probe(trained, source)
        print(f"| {source.name} | {len(source.class_names)} | {before:.1f} % | {after:.1f} % |")


if __name__ == "__main__":
    main()
