"""Llama's forward pass written out plainly, as a second opinion on weights, names and row order."""

import torch
import torch.nn.functional as F


class Llama:
    """Computes in float32 from a dict of tensors under Hugging Face's names and a dict like config.json."""

    def __init__(self, config: dict, tensors: dict[str, torch.Tensor]):
        self.config, self.tensors = config, tensors

    def greedy(self, token_ids: list[int], count: int) -> list[int]:
        """The next `count` tokens; everything is computed anew for each."""
        ids = list(token_ids)
        for _ in range(count):
            ids.append(int(self.logits(ids).argmax()))
        return ids[len(token_ids) :]

    def logits(self, ids: list[int]) -> torch.Tensor:
        """[vocab] after the last of `ids`."""
        hidden = self.tensors["model.embed_tokens.weight"][ids]
        for index in range(self.config["num_hidden_layers"]):
            layer = f"model.layers.{index}."
            hidden = hidden + self.attention(layer, self.norm(layer + "input_layernorm", hidden))
            hidden = hidden + self.mlp(layer + "mlp.", self.norm(layer + "post_attention_layernorm", hidden))
        head = self.tensors.get("lm_head.weight", self.tensors["model.embed_tokens.weight"])
        return head @ self.norm("model.norm", hidden[-1])

    def norm(self, name: str, x: torch.Tensor) -> torch.Tensor:
        mean = x.square().mean(-1, keepdim=True)
        return x * (mean + self.config["rms_norm_eps"]).rsqrt() * self.tensors[name + ".weight"]

    def project(self, name: str, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.tensors[name + ".weight"], self.tensors.get(name + ".bias"))

    def attention(self, layer: str, x: torch.Tensor) -> torch.Tensor:
        D, T = self.config["head_dim"], len(x)
        q, k, v = (self.project(f"{layer}self_attn.{n}_proj", x).view(T, -1, D) for n in "qkv")
        q, k = self.rotate(q), self.rotate(k)
        share = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(share, 1), v.repeat_interleave(share, 1)
        scores = torch.einsum("thd,shd->hts", q, k) / D**0.5
        future = torch.ones(T, T, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(future, -torch.inf).softmax(-1)
        mixed = torch.einsum("hts,shd->thd", weights, v).reshape(T, -1)
        return self.project(layer + "self_attn.o_proj", mixed)

    def rotate(self, x: torch.Tensor) -> torch.Tensor:
        """Each pair (x[i], x[i + D/2]) of a head by its position's angle."""
        T, _, D = x.shape
        speeds = self.config["rope_parameters"]["rope_theta"] ** -(torch.arange(0, D, 2) / D)
        angles = torch.arange(T)[:, None, None] * speeds
        first, second = x.chunk(2, -1)
        cos, sin = angles.cos(), angles.sin()
        return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)

    def mlp(self, name: str, x: torch.Tensor) -> torch.Tensor:
        gate, up = self.project(name + "gate_proj", x), self.project(name + "up_proj", x)
        return self.project(name + "down_proj", F.silu(gate) * up)
