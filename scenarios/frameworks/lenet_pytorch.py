"""Train LeNet-5 with DistributedDataParallel."""

import argparse
import time

import torch
import torch.distributed as dist
from digits import load_pictures
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def make_lenet():
    return nn.Sequential(
        nn.Upsample(scale_factor=4),  # 8 x 8 pixels become 32 x 32
        *(nn.Conv2d(1, 6, 5), nn.ReLU(), nn.AvgPool2d(2)),
        *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.AvgPool2d(2)),
        *(nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)),
    )


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=64, help="samples of all ranks")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--rate", type=float, default=0.003)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def main():
    args = parse_arguments()

    dist.init_process_group("gloo")
    torch.manual_seed(args.seed)
    net = make_lenet()
    model = DistributedDataParallel(net)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.rate)
    loss_function = nn.CrossEntropyLoss()

    x, test_x, y, test_y = map(torch.from_numpy, load_pictures())
    train = TensorDataset(x[:, None], y)
    sampler = DistributedSampler(train, seed=args.seed)
    loader = DataLoader(train, batch_size=args.batch // dist.get_world_size(), sampler=sampler, drop_last=True)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        begin_s = time.monotonic()
        for x, y in loader:
            optimizer.zero_grad()
            loss = loss_function(model(x), y)
            loss.backward()
            optimizer.step()
        step_ms = 1e3 * (time.monotonic() - begin_s) / len(loader)
        with torch.no_grad():
            accuracy = (net(test_x[:, None]).argmax(1) == test_y).float().mean().item()
        if dist.get_rank() == 0:
            print(f"epoch {epoch + 1} loss={loss.item():.4f} accuracy={accuracy:.4f} step_ms={step_ms:.1f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
