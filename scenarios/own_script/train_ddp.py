"""Train a small network with DistributedDataParallel, as tutorials have it."""

import argparse

import torch
import torch.distributed as dist
from pictures import make_pictures
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def make_data(samples, seed):
    return TensorDataset(*map(torch.from_numpy, make_pictures(samples, seed)))


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rate", type=float, default=0.01)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--samples", type=int, default=1024)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def main():
    args = parse_arguments()

    dist.init_process_group("gloo")
    torch.manual_seed(args.seed)
    net = nn.Sequential(nn.Linear(64, args.hidden), nn.ReLU(), nn.Linear(args.hidden, 10))
    model = DistributedDataParallel(net)
    rate = args.rate * dist.get_world_size()  # n ranks compute a batch that is n times as large
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    loss_function = nn.CrossEntropyLoss()

    train, test = make_data(args.samples, args.seed), make_data(512, 1000)
    sampler = DistributedSampler(train, seed=args.seed)
    loader = DataLoader(train, batch_size=args.batch, sampler=sampler, drop_last=True)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            loss = loss_function(model(x), y)
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            x, y = test.tensors
            accuracy = (net(x).argmax(1) == y).float().mean().item()
        if dist.get_rank() == 0:
            print(f"epoch {epoch + 1} loss={loss.item():.4f} accuracy={accuracy:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
