"""A colleague's engine: Qwen3's forward pass in one class. It runs, it speaks, it is wrong (notebook 06)."""

import torch
import torch.nn.functional as F


class Engine:
    """`weights`: Hugging Face's names and float32 tensors. `config`: the model's configuration.

    T tokens, H query heads, K key/value heads, D head_dim. No batch, no cache: the whole text in one pass.
    """

    def __init__(self, weights, config):
        self.weights, self.config = weights, config

    def norm(self, x, weight):
        """RMSNorm of `x` [..., width]."""
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.config.rms_norm_eps) * weight

    def rotate(self, x):
        """RoPE of `x` [heads, T, D]: token t is turned by the angles of position t."""
        T, D = x.shape[1:]
        frequencies = 1_000_000.0 ** (-torch.arange(0, D, 2) / D)  # [D/2]
        angles = torch.arange(T)[:, None] * frequencies  # [T, D/2]
        first, second = x.chunk(2, -1)
        cos, sin = angles.cos(), angles.sin()
        return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)

    def attend(self, q, k, v):
        """Causal attention: `q` [H, T, D] over `k`, `v` [K, T, D] → [H, T, D]."""
        k, v = (x.repeat_interleave(len(q) // len(x), 0) for x in (k, v))
        head_dim = self.config.hidden_size // self.config.num_attention_heads
        scores = q @ k.mT / head_dim**0.5
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        return scores.masked_fill(later, float("-inf")).softmax(-1) @ v

    def mlp(self, x, gate, up, down):
        """SwiGLU of `x` [T, hidden] with the three matrices of `gate_proj`, `up_proj` and `down_proj`."""
        return F.linear(F.gelu(F.linear(x, gate)) * F.linear(x, up), down)

    def layer(self, index, hidden):
        """Decoder layer `index`: `hidden` [T, hidden] → the same shape."""
        x = self.norm(hidden, self.weight(index, "input_layernorm"))
        q, k, v = (self.heads(F.linear(x, self.weight(index, f"self_attn.{p}_proj"))) for p in "qkv")
        q = self.rotate(self.norm(q, self.weight(index, "self_attn.q_norm")))
        k = self.rotate(self.norm(k, self.weight(index, "self_attn.k_norm")))
        mixed = self.attend(q, k, v).transpose(0, 1).flatten(1)  # [T, H·D]
        hidden = hidden + F.linear(mixed, self.weight(index, "self_attn.o_proj"))
        x = self.norm(hidden, self.weight(index, "post_attention_layernorm"))
        return hidden + self.mlp(x, *(self.weight(index, f"mlp.{p}_proj") for p in ("gate", "up", "down")))

    def states(self, token_ids):
        """What enters the first layer, then what leaves each layer: layers + 1 tensors [T, hidden]."""
        states = [self.weights["model.embed_tokens.weight"][token_ids]]
        for index in range(self.config.num_hidden_layers):
            states.append(self.layer(index, states[-1]))
        return states

    def logits(self, token_ids):
        """Logits of every position, [T, vocab]; embedding and head are tied."""
        last = self.norm(self.states(token_ids)[-1], self.weights["model.norm.weight"])
        return F.linear(last, self.weights["model.embed_tokens.weight"])

    def generate(self, token_ids, count):
        """`count` greedy tokens, each from a pass over the whole text: slow, but no cache can be wrong."""
        text = list(token_ids)
        for _ in range(count):
            text.append(int(self.logits(text)[-1].argmax()))
        return text[len(token_ids) :]

    def weight(self, index, name):
        return self.weights[f"model.layers.{index}.{name}.weight"]

    def heads(self, x):
        """[T, heads·D] → [heads, T, D]."""
        return x.view(len(x), -1, self.config.head_dim).transpose(0, 1)
