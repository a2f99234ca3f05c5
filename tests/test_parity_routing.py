"""Routing ties: where rounding decides which expert computes, logits cannot be compared, and only there."""

import torch
from conftest import make_reference

from experiments import reference

IDS = list(range(40))


def test_a_healthy_router_has_no_tie_and_a_dense_model_has_no_router():
    assert reference.first_routing_tie(make_reference(num_experts=6), IDS) == 40
    assert reference.first_routing_tie(make_reference(), IDS) == 40
    assert reference.first_routing_tie(make_reference(num_experts=2), IDS) == 40, "all experts are chosen"


def test_two_equal_experts_tie_at_the_first_position_where_they_stand_at_the_border():
    model = make_reference(num_experts=6)
    with torch.no_grad():
        router = model.model.layers[0].mlp.gate.weight
        router[1] = router[0]
    hidden = model.model.layers[0]
    inputs = []
    hook = hidden.mlp.gate.register_forward_hook(lambda module, args, out: inputs.append(args[0]))
    with torch.inference_mode():
        model(torch.tensor([IDS]))
    hook.remove()
    shares = (inputs[0].flatten(0, -2).double() @ router.double().T).softmax(-1)
    # The twins are at the border when exactly one of the other experts is better than both.
    better = [(row[2:] > row[0]).sum().item() for row in shares]
    expected = better.index(1)
    assert reference.first_routing_tie(model, IDS) == expected < 40
