"""The outer state that a run begins from: the weights of its model in float32."""

import os

from protocol.sites.outer import OuterState


def first_state(model: str) -> OuterState:
    """`model`: folder or Hugging Face id. Raises ConfigError for what is no model."""
    from engines.runtime import torch_environment

    for name, value in torch_environment(1).items():
        os.environ.setdefault(name, value)
    from engines.loading import load_model
    from trainer.model.policy import model_folder
    from trainer.sites.model_tensors import model_tensors

    return OuterState.start(model_tensors(load_model(model_folder(model), "float32").requires_grad_(True)))
