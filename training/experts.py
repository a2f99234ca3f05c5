"""Mixture-of-experts layers in training: all experts at once, and a loss that keeps all of them in use."""

import torch
from torch.nn import functional
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

AT_ONCE = "all_at_once"


def experts_at_once(module, hidden, chosen, weights):
    """Σ over a token's experts of weight · expert(x), as one MLP as wide as all experts together.

    `hidden` [N, D], `chosen` and `weights` [N, k] → [N, D]. Experts that were not chosen count with weight 0.
    Small experts waste less time this way than in a loop, and the shapes do not depend on the routing, as
    compiling asks for.
    """
    gates = hidden.new_zeros(len(hidden), module.num_experts, dtype=weights.dtype)
    gates = gates.scatter(1, chosen, weights)
    both = functional.linear(hidden, module.gate_up_proj.flatten(0, 1))
    gate, up = both.unflatten(-1, (module.num_experts, -1)).chunk(2, dim=-1)  # [N, experts, width] each
    inner = module.act_fn(gate) * up * gates[..., None]
    return functional.linear(inner.flatten(1), module.down_proj.transpose(0, 1).flatten(1))


ALL_EXPERTS_FUNCTIONS.register(AT_ONCE, experts_at_once)


@torch.no_grad()
def prepare(model):
    """Let a `model` with experts hook its routers, which transformers does in the first call.

    It does so under a lock, which torch.compile cannot follow.
    """
    token = torch.zeros(1, 1, dtype=torch.long, device=model.device)
    model.model(input_ids=token, use_cache=False, output_router_logits=True)


def balance_loss(router_logits, top_k):
    """How unevenly experts are used: `top_k` when evenly; `router_logits` is one [N, experts] a layer.

    The mean over layers of experts · Σ share of tokens · mean probability. transformers' own loss pools the
    layers first, so an expert that one layer overuses may make up for one that another layer never uses.
    """
    layers = []
    for logits in router_logits:
        probabilities = logits.float().softmax(-1)
        chosen = probabilities.topk(top_k, dim=-1).indices
        used = torch.zeros_like(probabilities).scatter(1, chosen, 1.0).mean(0)
        layers.append(logits.shape[-1] * (used * probabilities.mean(0)).sum())
    return torch.stack(layers).mean()
