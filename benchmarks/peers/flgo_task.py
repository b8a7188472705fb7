"""The task's configuration file, as FLGo asks for one: data sets and model (FLGo copies it into its benchmark)."""

import torch
from torch import nn
from torch.utils.data import TensorDataset
from workload import from_command_line, load
from workload_torch import model, test_set

workload = from_command_line()
arrays = load(workload.name, workload.data_dir)
train_data = TensorDataset(torch.from_numpy(arrays.train_x), torch.from_numpy(arrays.train_y))
test_data = TensorDataset(*test_set(workload))


def get_model() -> nn.Module:
    return model(workload)
