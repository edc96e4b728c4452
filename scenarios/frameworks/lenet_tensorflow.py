"""Train LeNet-5 with MultiWorkerMirroredStrategy."""

import argparse
import time

import tensorflow as tf
from digits import load_pictures
from tensorflow.keras import layers


def make_lenet():
    return tf.keras.Sequential(
        [
            tf.keras.Input((8, 8, 1)),
            layers.UpSampling2D(4),  # 8 x 8 pixels become 32 x 32
            *(layers.Conv2D(6, 5, activation="relu"), layers.AveragePooling2D(2)),
            *(layers.Conv2D(16, 5, activation="relu"), layers.AveragePooling2D(2)),
            *(layers.Flatten(), layers.Dense(120, "relu"), layers.Dense(84, "relu"), layers.Dense(10)),
        ]
    )


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=64, help="samples of all workers")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--rate", type=float, default=0.003)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def main():
    args = parse_arguments()

    ring = tf.distribute.experimental.CommunicationImplementation.RING
    communication = tf.distribute.experimental.CommunicationOptions(implementation=ring)
    strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=communication)
    tf.keras.utils.set_random_seed(args.seed)
    with strategy.scope():
        net = make_lenet()
        optimizer = tf.keras.optimizers.Adam(args.rate)
        optimizer.build(net.trainable_variables)
    loss_function = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")

    x, test_x, y, test_y = load_pictures()
    data = tf.data.Dataset.from_tensor_slices((x[..., None], y)).shuffle(len(x), seed=args.seed)
    data = data.batch(args.batch, drop_remainder=True).repeat()  # endless: workers need not agree on its end
    batches = iter(strategy.experimental_distribute_dataset(data))
    steps = len(x) // args.batch

    @tf.function
    def train_step(x, y):
        def compute(x, y):
            with tf.GradientTape() as tape:
                loss = loss_function(y, net(x, training=True)) / args.batch
            gradients = tape.gradient(loss, net.trainable_variables)
            optimizer.apply_gradients(zip(gradients, net.trainable_variables))  # sums them over all workers
            return loss

        return strategy.run(compute, (x, y))

    for epoch in range(args.epochs):
        begin_s = time.monotonic()
        for _ in range(steps):
            loss = train_step(*next(batches))
        step_ms = 1e3 * (time.monotonic() - begin_s) / steps
        accuracy = (net(test_x[..., None]).numpy().argmax(1) == test_y).mean()
        if strategy.cluster_resolver.task_id == 0:
            loss = loss.numpy() * strategy.num_replicas_in_sync
            print(f"epoch {epoch + 1} loss={loss:.4f} accuracy={accuracy:.4f} step_ms={step_ms:.1f}")


if __name__ == "__main__":
    main()
