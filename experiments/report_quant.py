"""Tables of the report about fewer bits: streamed under the cap, and all on the GPU."""

from experiments.report_fits import CARD_HEAD
from experiments.report_results import NOTHING, Archive, caption, number, over, size
from experiments.report_table import ABSENT, Table
from minillm.units import GB

STREAMED = (
    *("model", "weights", "layers on the GPU", "copied a token", "decode, tok/s", "of its limit"),
    *("over the limit of 16 bits", "peak GPU memory", CARD_HEAD),
)
RESIDENT = ("weights", "decode, tok/s", "over 16 bits", "peak GPU memory", "eager, tok/s")


def streamed(archive: Archive) -> Table:
    """The same placement in fewer bits, and larger models; the limit of 16 bits: of the same command."""
    stored = archive.get("quant")
    rows = tuple(_streamed(row) for row in stored.rows() if row.get("mode") == "prefetch")
    notes = ("Prompts and answers are short here; longer ones leave room for fewer layers.",)
    return Table(caption("Streamed in fewer bits", stored), STREAMED, rows or ABSENT, notes if rows else ())


def _streamed(row: dict) -> tuple[str, ...]:
    speed = row["tokens_per_s"]
    return (
        row["model"],
        bits(row),
        f"{row['budget']} of {row['resident'] + row['streamed']}",
        f"{row['streamed_bytes'] / GB:.1f} GB",
        number(speed),
        number(over(speed, row["limit_tokens_per_s"]), ".1%"),
        number(over(speed, row["dense_limit_tokens_per_s"])),
        size(row["peak_bytes"]),
        number(row["rtx3070_tokens_per_s"]),
    )


def resident(archive: Archive) -> Table:
    """All layers on the GPU, without the cap: what fewer bits give where nothing streams."""
    stored = archive.get("quant")
    fast = [row for row in stored.rows() if row["key"].endswith("/resident")]
    eager = {row["key"].removesuffix("-eager"): row["tokens_per_s"] for row in stored.rows() if is_eager(row)}
    dense = next((row["tokens_per_s"] for row in fast if row["quantize"] is None), None)
    rows = tuple(
        (
            bits(row),
            number(row["tokens_per_s"], ".1f"),
            number(over(row["tokens_per_s"], dense)),
            size(row["peak_bytes"]),
            number(eager[row["key"]], ".1f") if row["key"] in eager else NOTHING,
        )
        for row in fast
    )
    notes = ("Eager: what is packed is expanded for each product. The head stays in 16 bits everywhere.",)
    title = caption("Qwen3-8B, all layers on the GPU, no cap", stored)
    return Table(title, RESIDENT, rows or ABSENT, notes if rows else ())


def is_eager(row: dict) -> bool:
    return row["key"].endswith("/resident-eager")


def bits(row: dict) -> str:
    return row["quantize"] or "16 bits"
