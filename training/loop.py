"""The training loop: weighted next-token loss in bf16, AdamW, a schedule that always completes its decay."""

import time

import torch
from torch.nn import functional
from transformers import AttentionInterface

from training.experts import balance_loss, prepare

WARMUP_STEPS = 150
CONSTANT_UNTIL = 0.4
LAST_LR_SHARE = 0.01
REPORT_EVERY_S = 20


def causal_attention(module, query, key, value, attention_mask, scaling, **_):
    """Plain causal attention over whole rows: no mask is built, so the fused kernel is used."""
    query, key = query.to(value.dtype), key.to(value.dtype)
    out = functional.scaled_dot_product_attention(
        query, key, value, is_causal=True, scale=scaling, enable_gqa=True
    )
    return out.transpose(1, 2).contiguous(), None


AttentionInterface.register("causal_rows", causal_attention)


class Limit:
    """How far training is: by time or by steps, so that the learning rate reaches its end either way."""

    def __init__(self, seconds=None, steps=None):
        if (seconds is None) == (steps is None):
            raise ValueError("give either seconds or steps of training, not both and not neither")
        self.seconds, self.steps = seconds, steps
        self.start = time.monotonic()

    def elapsed(self):
        """Seconds since the start."""
        return time.monotonic() - self.start

    def progress(self, step):
        """Share of the training that is done, 0 to 1."""
        done = self.elapsed() / self.seconds if self.seconds else step / self.steps
        return min(1.0, done)


def lr_share(step, progress):
    """Share of the peak learning rate: warm-up by steps, constant, then linear down to `LAST_LR_SHARE`."""
    decay = min(1.0, (1.0 - progress) / (1.0 - CONSTANT_UNTIL))
    return min(1.0, (step + 1) / WARMUP_STEPS) * max(decay, LAST_LR_SHARE)


def make_optimizer(model, lr, device):
    """AdamW; only matrices decay."""
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95), fused=device == "cuda")


def weighted_loss(model, tokens, weights, routed):
    """Mean next-token loss of `tokens` int64 [B, T], weighted by `weights` float32 [B, T] of the targets.

    A `routed` model adds its configured share of the balance of its experts.
    """
    extra = {"output_router_logits": True} if routed else {}
    out = model.model(input_ids=tokens, use_cache=False, **extra)
    logits = model.lm_head(out.last_hidden_state)[:, :-1].float().flatten(0, 1)
    losses = functional.cross_entropy(logits, tokens[:, 1:].flatten(), reduction="none")
    share = weights[:, 1:].flatten()
    loss = (losses * share).sum() / share.sum()
    if not routed:
        return loss
    balance = balance_loss(out.router_logits, model.config.num_experts_per_tok)
    return loss + model.config.router_aux_loss_coef * balance


def to_device(batch, device):
    """numpy (uint16, uint8) to (int64 tokens, float32 weights between 0 and 1)."""
    tokens, weights = (torch.from_numpy(array.astype("int32")) for array in batch)
    if device == "cuda":
        tokens, weights = (t.pin_memory().to(device, non_blocking=True) for t in (tokens, weights))
    return tokens.long(), weights.float() / 100


def train(model, batches, limit, lr, device, watch=None, compiled=True):
    """Train `model` in place until `limit`; returns facts about the run as a dict.

    A line is printed every `REPORT_EVERY_S` seconds; `watch(model)`, if given, returns text to add to it.
    `compiled` counts on a GPU only.
    """
    routed = hasattr(model.config, "num_experts")
    optimizer = make_optimizer(model, lr, device)
    if routed:
        prepare(model)
    compiled = compiled and device == "cuda"
    loss_of = torch.compile(weighted_loss, dynamic=False) if compiled else weighted_loss
    step, seen, reported, loss = 0, 0, -REPORT_EVERY_S, None
    for batch in batches:
        progress = limit.progress(step)
        if progress >= 1.0:
            break
        for group in optimizer.param_groups:
            group["lr"] = lr * lr_share(step, progress)
        tokens, weights = to_device(batch, device)
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
            loss = loss_of(model, tokens, weights, routed)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        step, seen = step + 1, seen + tokens.numel()
        # Waiting for the device now and then keeps the clock, and with it the schedule, honest.
        shown = loss.item() if step % 10 == 0 else None
        if shown is not None and limit.elapsed() - reported >= REPORT_EVERY_S:
            reported = limit.elapsed()
            note = watch(model) if watch else ""
            print(
                f"{reported:6.1f} s, step {step}, {seen / 1e6:.1f} M tokens, loss {shown:.4f}  {note}",
                flush=True,
            )
    return {
        "steps": step,
        "tokens": seen,
        "seconds": round(limit.elapsed(), 1),
        "last_loss": round(loss.item(), 4),
    }
