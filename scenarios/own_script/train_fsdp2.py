"""Train the network of train_ddp.py with parameters that are sharded over the ranks (FSDP2), as tutorials have it."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler
from train_ddp import make_data, parse_arguments


def main():
    args = parse_arguments()

    dist.init_process_group("gloo")
    torch.manual_seed(args.seed)
    model = nn.Sequential(nn.Linear(64, args.hidden), nn.ReLU(), nn.Linear(args.hidden, 10))
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)  # its parameters are gathered before it computes, and freed after
    fully_shard(model, mesh=mesh)
    rate = args.rate * dist.get_world_size()
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)  # updates the shard of this rank
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
        with torch.no_grad():  # every rank takes part, because every rank has a part of the model
            x, y = test.tensors
            accuracy = (model(x).argmax(1) == y).float().mean().item()
        if dist.get_rank() == 0:
            print(f"epoch {epoch + 1} loss={loss.item():.4f} accuracy={accuracy:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
