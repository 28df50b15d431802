"""The four workloads that `train.py` trains: their data, network, target and batch sizes.

| name | data | network | target |
|---|---|---|---|
| images | CIFAR-10 as JPEG files, the training images at hand | ConvNeXt-like, 4.4 million parameters | accuracy |
| text | AG News, its first file as bytes | causal Transformer over 128 bytes | bits per byte |
| topics | AG News, four topics | Transformer over 48 hashed words | accuracy |
| clicks | **generated**: clicks of users with eight hidden tastes | embeddings and a small network | AUC |

Everything lies in the memory of the GPU before a run begins. Networks have neither dropout nor batch statistics, so a
run is given by its batch size and its seed.
"""

from __future__ import annotations

import io
import re
import zipfile
import zlib
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

TOPICS = ("World", "Sports", "Business", "Sci/Tech")
WORDS, WORD_BUCKETS = 48, 30_000
CONTEXT = 128  # bytes that the language model sees
USERS, ITEMS, CLICKS, CLICKS_HELD_OUT = 10_000, 2_000, 4_000_000, 100_000
WORDS_HIDDEN = 0.3  # share of the words of a news item that an epoch does not show


@dataclass(frozen=True)
class Data:
    """Training and held-out examples on the GPU. `refresh` writes an epoch's training inputs over `inputs`."""

    inputs: Tensor
    labels: Tensor
    test_inputs: Tensor
    test_labels: Tensor
    refresh: Callable[[torch.Generator], None] | None = None


@dataclass(frozen=True)
class Task:
    """One workload. The learning rate is `rate` at the default batch size and grows with the root of the size."""

    dataset: str
    network: str
    batch_sizes: tuple[int, ...]
    default: int
    rate: float
    target: float
    max_epochs: int
    load: Callable[[Path, torch.device], Data]
    build: Callable[[], nn.Module]
    loss: Callable[[Tensor, Tensor], Tensor]
    metric: Callable[[Tensor, Tensor], float]
    higher_is_better: bool = True

    def reached(self, metric: float) -> bool:
        return metric >= self.target if self.higher_is_better else metric <= self.target

    def learning_rate(self, size: int) -> float:
        return self.rate * (size / self.default) ** 0.5


class ConvBlock(nn.Module):
    """A depthwise convolution, then a network of two layers over the channels, added to the input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        return x + self.narrow(functional.gelu(self.wide(y))).permute(0, 3, 1, 2)


class ConvNet(nn.Module):
    def __init__(self, widths: tuple[int, ...] = (96, 192, 384), depths: tuple[int, ...] = (2, 2, 2)) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        before = 3
        for width, depth in zip(widths, depths, strict=True):
            layers += [nn.Conv2d(before, width, 2, stride=2), *(ConvBlock(width) for _ in range(depth))]
            before = width
        self.body, self.norm, self.head = nn.Sequential(*layers), nn.LayerNorm(before), nn.Linear(before, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.body(x).mean((2, 3))))


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, *, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.mixed, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        count, length, width = x.shape
        q, k, v = self.mixed(x).view(count, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(seen.transpose(1, 2).reshape(count, length, width))


class Transformer(nn.Module):
    """Over tokens: predicts the next token of each (causal), or one class from their mean."""

    def __init__(self, tokens: int, length: int, classes: int, width: int, layers: int, *, causal: bool) -> None:
        super().__init__()
        self.causal = causal
        self.token, self.place = nn.Embedding(tokens, width), nn.Parameter(0.02 * torch.randn(length, width))
        nn.init.normal_(self.token.weight, std=0.02)
        self.attention = nn.ModuleList(Attention(width, 4, causal=causal) for _ in range(layers))
        self.wide = nn.ModuleList(nn.Linear(width, 4 * width) for _ in range(layers))
        self.narrow = nn.ModuleList(nn.Linear(4 * width, width) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * layers + 1))
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        y = self.token(x) + self.place
        for i, attention in enumerate(self.attention):
            y = y + attention(self.norms[2 * i](y))
            y = y + self.narrow[i](functional.gelu(self.wide[i](self.norms[2 * i + 1](y))))
        y = self.norms[-1](y)
        return self.head(y if self.causal else y.mean(1))


class Recommender(nn.Module):
    """Scores a pair (user, item) from the product of their vectors and a small network over both."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.user, self.item = nn.Embedding(USERS, width), nn.Embedding(ITEMS, width)
        nn.init.normal_(self.user.weight, std=0.05)
        nn.init.normal_(self.item.weight, std=0.05)
        self.deep = nn.Sequential(nn.Linear(2 * width, 256), nn.ReLU(), nn.Linear(256, width), nn.ReLU())
        self.head = nn.Linear(2 * width, 1)

    def forward(self, pairs: Tensor) -> Tensor:
        user, item = self.user(pairs[:, 0]), self.item(pairs[:, 1])
        return self.head(torch.cat([user * item, self.deep(torch.cat([user, item], 1))], 1)).squeeze(1)


def _decode(part: Path) -> list[tuple[bool, str, bytes]]:
    from PIL import Image

    found = []
    with zipfile.ZipFile(part) as archive:
        for name in archive.namelist():
            if name.endswith(".jpg"):
                split, kind, _ = name.split("/")
                pixels = np.asarray(Image.open(io.BytesIO(archive.read(name))).convert("RGB"))
                found.append((split == "train", kind, pixels.tobytes()))
    return found


def images(folder: Path, device: torch.device) -> Data:
    parts = sorted((folder / "cifar10_jpeg").glob("part-*.zip"))
    with ProcessPoolExecutor() as pool:
        every = [one for some in pool.map(_decode, parts) for one in some]
    kinds = sorted({kind for _, kind, _ in every})

    def pick(train: bool) -> tuple[Tensor, Tensor]:
        some = [one for one in every if one[0] is train]
        pixels = np.frombuffer(b"".join(one[2] for one in some), np.uint8).reshape(-1, 32, 32, 3)
        x = torch.from_numpy(pixels.copy()).to(device).permute(0, 3, 1, 2).float()
        return (x - 121) / 64, torch.tensor([kinds.index(one[1]) for one in some], device=device)

    plain, labels = pick(True)
    test, test_labels = pick(False)
    padded = functional.pad(plain, (4, 4, 4, 4))
    inputs = plain.clone(memory_format=torch.channels_last)

    def refresh(chance: torch.Generator) -> None:
        """Shift each image by up to four pixels, and mirror every other one."""
        count = len(inputs)
        across = torch.arange(32, device=device)
        right, down = (torch.randint(0, 9, (count, 1), device=device, generator=chance) + across for _ in range(2))
        mirrored = torch.rand(count, 1, device=device, generator=chance) < 0.5
        right = torch.where(mirrored, right.flip(1), right)
        image = torch.arange(count, device=device)[:, None, None]
        moved = padded.permute(0, 2, 3, 1)[image, down[:, :, None], right[:, None, :]]
        inputs.copy_(moved.permute(0, 3, 1, 2))

    return Data(inputs, labels, test.contiguous(memory_format=torch.channels_last), test_labels, refresh)


def _rows(path: Path) -> list[tuple[str, str]]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return [(text, topic) for text, _, topic in (line.rpartition("\t") for line in lines) if topic in TOPICS]


def text(folder: Path, device: torch.device) -> Data:
    def pieces(name: str) -> Tensor:
        joined = "\n".join(words for words, _ in _rows(folder / "sst2_agnews" / "agnews" / name))
        every = torch.from_numpy(np.frombuffer(joined.encode(), np.uint8).copy()).long()
        return every[: len(every) // (CONTEXT + 1) * (CONTEXT + 1)].view(-1, CONTEXT + 1).to(device)

    train, test = pieces("dev.tsv"), pieces("test.tsv")[:4000]
    return Data(train[:, :-1].contiguous(), train[:, 1:].contiguous(), test[:, :-1], test[:, 1:])


def topics(folder: Path, device: torch.device) -> Data:
    def pick(name: str) -> tuple[Tensor, Tensor]:
        rows = _rows(folder / "sst2_agnews" / "agnews" / name)
        x = torch.zeros(len(rows), WORDS, dtype=torch.long)
        for i, (words, _) in enumerate(rows):
            for j, word in enumerate(re.findall(r"[a-z0-9]+", words.lower())[:WORDS]):
                x[i, j] = 1 + zlib.crc32(word.encode()) % (WORD_BUCKETS - 1)
        return x.to(device), torch.tensor([TOPICS.index(topic) for _, topic in rows], device=device)

    whole, labels = pick("dev.tsv")
    test, test_labels = pick("test.tsv")
    inputs = whole.clone()

    def refresh(chance: torch.Generator) -> None:
        shown = torch.rand(whole.shape, device=device, generator=chance) >= WORDS_HIDDEN
        inputs.copy_(whole * shown)

    return Data(inputs, labels, test, test_labels, refresh)


def clicks(folder: Path, device: torch.device) -> Data:
    """Generated, the same each time: who clicks depends on eight hidden tastes, on chance, and on nothing else."""
    chance = torch.Generator().manual_seed(0)
    users, items = (torch.randn(count, 8, generator=chance) for count in (USERS, ITEMS))
    liked = torch.randn(ITEMS, generator=chance)
    count = CLICKS + CLICKS_HELD_OUT
    user, item = (torch.randint(0, many, (count,), generator=chance) for many in (USERS, ITEMS))
    score = (users[user] * items[item]).sum(1) + liked[item]
    label = (torch.rand(count, generator=chance) < torch.sigmoid(score)).float().to(device)
    pairs = torch.stack([user, item], 1).to(device)
    return Data(pairs[:CLICKS], label[:CLICKS], pairs[CLICKS:], label[CLICKS:])


def _accuracy(scores: Tensor, labels: Tensor) -> float:
    return float((scores.argmax(1) == labels).float().mean())


def _bits(scores: Tensor, labels: Tensor) -> float:
    return float(_next_byte(scores, labels)) / float(np.log(2))


def _auc(scores: Tensor, labels: Tensor) -> float:
    """How often a pair that was clicked is scored above one that was not."""
    rank = scores.argsort().argsort().double() + 1
    hits, misses = labels.sum().double(), (1 - labels).sum().double()
    return float((rank[labels > 0.5].sum() - hits * (hits + 1) / 2) / (hits * misses))


def _next_byte(scores: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(scores.flatten(0, 1), labels.flatten())


TASKS = {
    "images": Task(
        dataset="cifar10",
        network="convnext",
        batch_sizes=(16, 32, 64, 128, 256, 512, 1024, 2048),
        default=128,
        rate=1e-3,
        target=0.65,
        max_epochs=40,
        load=images,
        build=ConvNet,
        loss=functional.cross_entropy,
        metric=_accuracy,
    ),
    "text": Task(
        dataset="agnews-bytes",
        network="transformer",
        batch_sizes=(8, 16, 32, 64, 128, 256, 512, 1024),
        default=64,
        rate=1e-3,
        target=2.0,
        max_epochs=40,
        load=text,
        build=lambda: Transformer(256, CONTEXT, 256, 256, 4, causal=True),
        loss=_next_byte,
        metric=_bits,
        higher_is_better=False,
    ),
    "topics": Task(
        dataset="agnews",
        network="transformer",
        batch_sizes=(8, 16, 32, 64, 128, 256, 512, 1024),
        default=64,
        rate=5e-5,
        target=0.85,
        max_epochs=30,
        load=topics,
        build=lambda: Transformer(WORD_BUCKETS, WORDS, 4, 512, 4, causal=False),
        loss=functional.cross_entropy,
        metric=_accuracy,
    ),
    "clicks": Task(
        dataset="generated-clicks",
        network="recommender",
        batch_sizes=(1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072),
        default=4096,
        rate=1.4e-3,
        target=0.89,
        max_epochs=30,
        load=clicks,
        build=Recommender,
        loss=functional.binary_cross_entropy_with_logits,
        metric=_auc,
    ),
}
