"""FedJAX: its federated averaging with models in Haiku, on its default (compiled) backend for clients."""

from __future__ import annotations

import fedjax
import haiku as hk
import jax
import numpy as np
from workload import CIFAR_MEAN, CIFAR_STD, Stopwatch, Workload, from_command_line, load, partition


def to_input(workload: Workload, images: np.ndarray) -> np.ndarray:
    """uint8 images, N x H x W x C, as the model's float32 input."""
    if workload.name == "fmnist-mlp":
        return images.astype(np.float32) / 127.5 - 1
    return (images.astype(np.float32) - 255 * CIFAR_MEAN) / (255 * CIFAR_STD)


def crop_and_flip(images: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """Each image cropped at random from itself padded with 4 black pixels a side, and mirrored half of the time."""
    n = len(images)
    padded = np.pad(images, ((0, 0), (4, 4), (4, 4), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (32, 32), axis=(1, 2))
    cropped = windows[np.arange(n), draw.integers(9, size=n), draw.integers(9, size=n)]
    cropped = cropped.transpose(0, 2, 3, 1)
    return np.where(draw.random((n, 1, 1, 1)) < 0.5, cropped[:, :, ::-1], cropped)


def model(workload: Workload) -> fedjax.Model:
    def mlp(batch: fedjax.BatchExample, is_train: bool = True) -> jax.Array:
        x = hk.Linear(50)(hk.Flatten()(batch["x"]))
        x = hk.dropout(hk.next_rng_key(), 0.5, x) if is_train else x
        return hk.Linear(10)(jax.nn.relu(x))

    def cnn(batch: fedjax.BatchExample, is_train: bool = True) -> jax.Array:
        x = batch["x"]
        for channels in (6, 16):
            x = jax.nn.relu(hk.Conv2D(channels, 5, padding="VALID")(x))
            x = hk.MaxPool(2, 2, padding="VALID", channel_axis=-1)(x)
        return hk.nets.MLP([120, 84, 10])(hk.Flatten()(x))

    shape = (1, 28, 28, 1) if workload.name == "fmnist-mlp" else (1, 32, 32, 3)
    return fedjax.create_model_from_haiku(
        transformed_forward_pass=hk.transform(mlp if workload.name == "fmnist-mlp" else cnn),
        sample_batch={"x": np.zeros(shape, np.float32), "y": np.zeros(1, np.int32)},
        train_loss=lambda batch, out: fedjax.metrics.unreduced_cross_entropy_loss(batch["y"], out),
        eval_metrics={"accuracy": fedjax.metrics.Accuracy()},
        train_kwargs={"is_train": True},
        eval_kwargs={"is_train": False},
    )


def main() -> None:
    workload = from_command_line()
    arrays = load(workload.name, workload.data_dir)
    train_x, test_x = (images.transpose(0, 2, 3, 1) for images in (arrays.train_x, arrays.test_x))
    clients = {}
    for client, mine in enumerate(partition(workload)):
        x = train_x[mine] if workload.name == "cifar-cnn" else to_input(workload, train_x[mine])
        clients[client] = {"x": x, "y": arrays.train_y[mine].astype(np.int32)}
    federation = fedjax.InMemoryFederatedData(clients)
    if workload.name == "cifar-cnn":
        draw = np.random.default_rng(workload.seed)
        federation = federation.preprocess_batch(
            lambda batch: {**batch, "x": to_input(workload, crop_and_flip(batch["x"], draw))}
        )
    net = model(workload)
    algorithm = fedjax.algorithms.fed_avg.federated_averaging(
        grad_fn=fedjax.model_grad(net),
        client_optimizer=fedjax.optimizers.sgd(workload.lr),
        server_optimizer=fedjax.optimizers.sgd(1.0),
        client_batch_hparams=fedjax.ShuffleRepeatBatchHParams(
            batch_size=workload.batch_size, num_epochs=None, num_steps=workload.steps
        ),
    )
    sampler = fedjax.client_samplers.UniformGetClientSampler(federation, workload.per_round, workload.seed)
    test = fedjax.ClientDataset({"x": to_input(workload, test_x), "y": arrays.test_y.astype(np.int32)})
    state = algorithm.init(net.init(jax.random.PRNGKey(workload.seed)))
    watch = Stopwatch(workload)
    for round_number in range(workload.rounds):
        sampler.set_round_num(round_number)
        state, _ = algorithm.apply(state, sampler.sample())
        watch.lap(fedjax.evaluate_model(net, state.params, test.padded_batch(batch_size=1000))["accuracy"])
    watch.report()


if __name__ == "__main__":
    main()
