"""What a fresh router of Hash sees of images, for each backbone and each thing it may read.

    python benchmarks/routing.py nano weights/vit_tiny.safetensors --data cifar100_100x30.npz

The statistics of `centred` and `plain` are those of the images themselves. Writes a JSON file and
prints its table; training images alone are looked at.
"""

import argparse
import json
from pathlib import Path
from typing import Any, get_args

import torch
from hashprompt.methods.hash.router_input import RouterInput

from hashprompt.backbone.weights import load_backbone
from hashprompt.data.streams.stream import load_stream
from hashprompt.data.transforms.recipes import make_views
from hashprompt.methods.hash.router import Routers, choose
from hashprompt.methods.hash.routing_report import describe_routing
from hashprompt.options.stream import StreamOptions
from hashprompt.parts.variants import RouterReads
from hashprompt.storage.files import as_given, write_atomically

COLUMNS = ("average", "differs", "spread", "over_images", "favourite_share", "delta_over_spread")


@torch.no_grad()
def rows_of(backbone: str, data: Path, count: int, size: int, routers: int) -> list[dict[str, Any]]:
    """What routers see, averaged over `routers` fresh ones of 15 experts, two of them chosen."""
    loaded = load_backbone(backbone, None if backbone == "nano" else size)
    stream = load_stream(f"npz:{data}", StreamOptions(tasks=1, train_per_class=2), seed=0)
    table = stream.tasks[0].train
    views = make_views("weights", stream.name, loaded.preprocessing, False)
    images = views.clean(table.images[torch.arange(count)])
    tokens = torch.cat([loaded.model.embed(part) for part in images.split(32)])
    plain = torch.cat([loaded.model.encode(part) for part in tokens.split(32)])
    rows = []
    for reads in get_args(RouterReads):
        reader = RouterInput(reads, loaded.model.dim)
        if reader.needs_statistics:
            reader.fit(reader.basis(tokens, plain))
        read = reader(tokens, plain)
        mean = read.mean(1)
        found: list[dict[str, float]] = []
        for seed in range(routers):
            torch.manual_seed(seed)
            router = Routers(loaded.model.dim, 15, 1, "uniform")
            router.add(copy_last=True)
            scores = router.scores(read, None)[:, None]
            routing = choose(scores, torch.zeros(1, 15), 2)
            described = describe_routing(routing, table.labels[:count], 0.4)
            described["spread"] = float(scores.std(-1).mean())
            described["over_images"] = float(scores.std(0).mean())
            found.append(described)
        rows.append(
            {
                "backbone": Path(backbone).stem,
                "reads": reads,
                "average": float(mean.mean(0).norm()),
                "differs": float((mean - mean.mean(0)).norm(dim=1).mean()),
                **{name: sum(f[name] for f in found) / len(found) for name in found[0]},
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("backbones", nargs="+", help="names or files")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--size", type=int, default=112)
    parser.add_argument("--routers", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path("docs/results/routing.json"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    how = (args.data, args.images, args.size, args.routers)
    rows = [row for name in args.backbones for row in rows_of(name, *how)]
    write_atomically(as_given(args.out), (json.dumps(rows, indent=1) + "\n").encode())
    print("| backbone | reads |", " | ".join(COLUMNS), "|")
    for row in rows:
        values = " | ".join(f"{row[name]:.2f}" for name in COLUMNS)
        print(f"| {row['backbone']} | {row['reads']} | {values} |")


if __name__ == "__main__":
    main()
