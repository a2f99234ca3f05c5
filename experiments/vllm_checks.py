"""Figures of ours beside a peer's, computed from rows of one machine, and the goals that they are held to."""

from statistics import median

from experiments.offload_checks import over
from experiments.results import check, reported
from minillm import estimate, memory, presets
from minillm.units import GB

DECODE_GOAL, PREFILL_GOAL, PEAK_GOAL = 1.0, 1.1, 1.0
BANDWIDTH_GOAL, BANDWIDTH_MODEL = 0.80, "Qwen3-8B"
BITS = 16


def timed_checks(rows: list[dict], offloaded: str) -> list[dict]:
    """All figures that the rows allow; a peer that was asked for and has no rows leaves its goal unmet.

    `offloaded`: the model whose layers stream.
    """
    models = list(dict.fromkeys(row["model"] for row in rows if row.get("mode") == "resident"))
    checks = []
    for model in models:
        checks += own_checks(rows, model) + resident_checks(rows, model)
        checks += resident_checks(rows, model, mode="resident-process")
        checks += reported(resident_checks(rows, model, "transformers"))
    return checks + offloaded_checks(rows, offloaded) + start_checks(rows)


def start_checks(rows: list[dict]) -> list[dict]:
    """Seconds until an engine is ready, its first compiling included; only reported."""
    started = [row for row in rows if row["key"].endswith("/loaded")]
    return [
        check(f"{row['key']}: s until ready", row["load_s"] + row.get("warm_s", 0.0), None, "lower")
        for row in started
    ]


def failed_checks(rows: list[dict]) -> list[dict]:
    """True on every device: nothing that was asked for has failed."""
    return [check(f"{row['key']} ran", False, True) for row in rows if "failed" in row]


# ---- resident ----


def resident_checks(rows: list[dict], model: str, peer: str = "vllm", mode: str = "resident") -> list[dict]:
    """Ours over a peer, everything resident. `mode`: the peer's, which may run in a process of its own."""
    ours, theirs = resident_ours(rows, model), of(rows, model, peer, mode)
    called = peer if mode == "resident" else f"{peer} in its own process"
    checks, name = speeds(f"{model} resident, {called}", theirs), f"{model} resident: %s, ours over {called}"
    if not ours or not asked(rows, model, peer, mode):
        return checks
    checks.append(check(name % "decode tok/s", ratio(answers(ours), answers(theirs)), DECODE_GOAL))
    for tokens in sorted({row["prompt_tokens"] for row in ours if "/prefill/" in row["key"]}):
        mine, other = (
            [r for r in each if r["key"].endswith(f"/prefill/{tokens}")] for each in (ours, theirs)
        )
        found = ratio(mine, other, "ttft_s", by="prompt_tokens")
        checks.append(check(name % f"prefill latency of {tokens} tokens", found, PREFILL_GOAL, "lower"))
    if (peer, mode) == ("vllm", "resident"):  # others' KV caches are of other sizes, or cannot be seen
        checks.append(peak_check(name % "peak GPU memory", ours, theirs))
        counts = max((row.get("counts_bytes", 0) for row in asked(rows, model, peer, mode)), default=0)
        less = peak_check(name % "peak GPU memory less its counts for many sequences", ours, theirs, counts)
        checks += reported([less]) if counts else []
    return checks


def own_checks(rows: list[dict], model: str) -> list[dict]:
    """What our rows say by themselves, everything resident."""
    ours = resident_ours(rows, model)
    if not ours:
        return []
    checks = [*speeds(f"{model} resident, ours", ours), *bandwidth_checks(model, ours, copy_gb_s(rows))]
    counted = [row for row in answers(ours) if row["path"] == "fast" and "graph_replays" in row]
    if counted:
        replayed = all(row["graph_replays"] == row["new_tokens"] - 1 for row in counted)
        checks.append(check(f"{model} resident: graph replays are tokens - 1", replayed, True))
    return checks


def bandwidth_checks(model: str, rows: list[dict], rate: float | None) -> list[dict]:
    """Bytes of weights and KV that decoding reads a second over `rate`, what copying reads and writes."""
    if model not in presets.PRESETS:
        return []
    shares = [share for row in answers(rows) if (share := bandwidth_share(model, row, rate)) is not None]
    goal = BANDWIDTH_GOAL if model == BANDWIDTH_MODEL else None
    name = f"{model} resident: weights and KV read a second over the copy bandwidth"
    return [check(name, median(shares) if shares else None, goal)]


def copy_gb_s(rows: list[dict]) -> float | None:
    """GB that the device copies a second, read and written: the median of the commands that made `rows`.

    One rate for all programs of a file, since each command finds a slightly different one.
    """
    rates = {row["device_gb_s"] for row in rows if row.get("device_gb_s")}
    return median(rates) if rates else None


def bandwidth_share(model: str, row: dict, rate: float | None) -> float | None:
    """Of one answer: GB that its decoding reads a second over `rate`."""
    return over(row["tokens_per_s"] * read_gb(model, row), rate)


def read_gb(model: str, row: dict) -> float:
    """GB that a token of an answer reads: all weights once, and the KV of prompt and answer so far."""
    config = presets.load(model)
    context = row["prompt_tokens"] + row["new_tokens"] / 2
    cached = memory.kv_bytes_per_token(config, BITS // 8) * context
    return (estimate.bytes_per_token(config, BITS) + cached) / GB


# ---- offloaded ----


def offloaded_checks(rows: list[dict], model: str) -> list[dict]:
    """Ours over each offloader of vLLM, with the same resident layers and with the same GPU memory."""
    ours = of(rows, model, "minillm", "prefetch")
    checks = []
    for budget in sorted({row["budget"] for row in ours if row["budget"]}):
        mine = [row for row in ours if row["budget"] == budget]
        checks += speeds(f"{model}, at most {budget} layers on the device, ours", mine)
        for mode in ("prefetch", "uva"):
            if asked(rows, model, "vllm", mode):
                name = f"{model}, {budget} layers: %s, ours over vLLM's {mode} offloader"
                theirs = of(rows, model, "vllm", mode)
                found = ratio(answers(mine), answers(theirs))
                checks.append(check(name % "decode tok/s", found, DECODE_GOAL))
                first = ratio(answers(mine), answers(theirs), "ttft_s")
                checks.append(check(name % "TTFT", first, None, "lower"))
                checks.append(peak_check(name % "peak GPU memory", mine, theirs))
                locked = over(locked_bytes(mine), locked_bytes(theirs))
                checks.append(check(name % "locked host memory", locked, None, "lower"))
    for mode in ("prefetch", "uva"):
        checks += speeds(f"{model}, vLLM's {mode} offloader", of(rows, model, "vllm", mode))
    return checks


# ---- rows ----


def asked(rows: list[dict], model: str, engine: str, mode: str) -> list[dict]:
    """All rows of an engine that was asked for in one mode: of measurements, or of why there are none."""
    return [row for row in rows if (row["model"], row["engine"], row["mode"]) == (model, engine, mode)]


def of(rows: list[dict], model: str, engine: str, mode: str) -> list[dict]:
    """Those of measurements."""
    return [row for row in asked(rows, model, engine, mode) if "ttft_s" in row]


def resident_ours(rows: list[dict], model: str) -> list[dict]:
    """Our rows with everything resident, of the fast path where there are any."""
    found = of(rows, model, "minillm", "resident")
    return [row for row in found if row["path"] == "fast"] or found


def answers(rows: list[dict]) -> list[dict]:
    """Rows of whole answers: not prefills, not the one about memory."""
    return [row for row in rows if row["question_id"] is not None and row["tokens_per_s"]]


def ratio(
    ours: list[dict], theirs: list[dict], field: str = "tokens_per_s", by: str = "question_id"
) -> float | None:
    """Median of ours over theirs, of the same prompt; None without a pair."""
    other = {row[by]: row[field] for row in theirs}
    found = [over(row[field], other.get(row[by])) for row in ours]
    pairs = [each for each in found if each is not None]
    return median(pairs) if pairs else None


def peak_check(name: str, ours: list[dict], theirs: list[dict], less: int = 0) -> dict:
    """Most memory that a request takes, with KV caches of the same size; theirs without `less` bytes."""
    mine, other = (
        next((r["peak_bytes"] for r in rows if r["key"].endswith("/peak")), None) for rows in (ours, theirs)
    )
    return check(name, over(mine, other and other - less), PEAK_GOAL, "lower")


def locked_bytes(rows: list[dict]) -> int | None:
    """Host memory locked for streaming; None where nothing locks."""
    return next((row["host_locked_bytes"] for row in rows if row.get("host_locked_bytes")), None)


def speeds(name: str, rows: list[dict]) -> list[dict]:
    """Medians, only reported."""
    rows = answers(rows)
    if not rows:
        return []
    return [
        check(f"{name}: tok/s, median of {len(rows)} prompts", median(row["tokens_per_s"] for row in rows)),
        check(f"{name}: TTFT in s, median", median(row["ttft_s"] for row in rows), None, "lower"),
    ]
