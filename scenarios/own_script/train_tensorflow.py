"""Train a small network with MultiWorkerMirroredStrategy, as tutorials have it. The cluster comes from TF_CONFIG."""

import argparse

import tensorflow as tf
from pictures import make_pictures


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

    communication = tf.distribute.experimental.CommunicationOptions(
        implementation=tf.distribute.experimental.CommunicationImplementation.RING
    )
    strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=communication)
    workers = strategy.num_replicas_in_sync
    rank = strategy.cluster_resolver.task_id or 0
    tf.keras.utils.set_random_seed(args.seed)
    with strategy.scope():
        net = tf.keras.Sequential(
            [tf.keras.Input((64,)), tf.keras.layers.Dense(args.hidden, "relu"), tf.keras.layers.Dense(10)]
        )
        optimizer = tf.keras.optimizers.SGD(args.rate * workers, momentum=0.9)
        optimizer.build(net.trainable_variables)
    loss_function = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")

    batch = args.batch * workers
    pictures = make_pictures(args.samples, args.seed)
    data = tf.data.Dataset.from_tensor_slices(pictures).shuffle(args.samples, seed=args.seed)
    data = data.batch(batch, drop_remainder=True).repeat()  # endless: workers need not agree on its end
    batches = iter(strategy.experimental_distribute_dataset(data))
    test_x, test_y = make_pictures(512, 1000)

    @tf.function
    def train_step(x, y):
        def compute(x, y):
            with tf.GradientTape() as tape:
                loss = loss_function(y, net(x, training=True)) / batch
            optimizer.apply_gradients(zip(tape.gradient(loss, net.trainable_variables), net.trainable_variables))
            return loss

        return strategy.reduce("sum", strategy.run(compute, (x, y)), axis=None)

    for epoch in range(args.epochs):
        for _ in range(args.samples // batch):
            loss = train_step(*next(batches))
        accuracy = (net(test_x).numpy().argmax(1) == test_y).mean()
        if rank == 0:
            print(f"epoch {epoch + 1} loss={loss.numpy():.4f} accuracy={accuracy:.4f}", flush=True)


if __name__ == "__main__":
    main()
