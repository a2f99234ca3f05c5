"""Pack vLLM 0.24.0 for a GPU machine without network: `python -m tests.peers.pack_vllm FOLDER`.

Downloads the wheels with pip, unpacks them into one tree, leaves out what dense bfloat16 models on one Hopper
GPU do not use, and writes FOLDER/part-aa, … (a split tar.xz). For Linux x86-64, Python 3.12, torch 2.11.0,
sm_90. README.md beside this file says how it is used and what is not stock.
"""

import argparse
import lzma
import shutil
import string
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from tests.peers import fatbin

PACKAGES = Path(__file__).with_name("vllm_requirements.txt").read_text(encoding="utf-8").split()
PLATFORMS = [f"manylinux_2_{n}_x86_64" for n in (34, 31, 28, 27, 26, 24, 17, 5)]
PLATFORMS += ["manylinux2014_x86_64", "manylinux1_x86_64"]

# Not carried, relative to the tree: no experts, no MLA, nothing quantised, attention by FlashAttention 3.
REMOVE = [
    "vllm/vllm-rs",
    "vllm/_moe_C_stable_libtorch*.so",
    "vllm/_qutlass_C*.so",
    "vllm/_flashmla*.so",
    "vllm/vllm_flash_attn/_vllm_fa2_C*.so",
    "vllm/vllm_flash_attn/cute",
    "vllm/third_party/deep_gemm",
    "vllm/third_party/fmha_sm100",
    "vllm/model_executor/layers/fused_moe/configs/*.json",
    "vllm/model_executor/layers/quantization/utils/configs/*.json",
    "xgrammar/lib/*.a",
    "mistral_common/data",
]
SHRINK = "vllm/_C_stable_libtorch.abi3.so"
STRIP = "xgrammar/libxgrammar_bindings.so"


def main(arguments: list[str] | None = None) -> int:
    """Download, unpack, leave out, pack, split."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, help="where the parts go; keep it out of version control")
    parser.add_argument("--wheels", type=Path, help="folder that keeps the wheels, 332 MiB, for next time")
    parser.add_argument("--part-mib", type=float, default=58, help="largest part, MiB; default: 58, one part")
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        tree, archive = Path(scratch) / "tree", Path(scratch) / "site-vllm.tar.xz"
        unpack(download(PACKAGES, options.wheels or Path(scratch) / "wheels"), tree)
        remove(REMOVE, tree)
        kept, dropped = fatbin.shrink(tree / SHRINK)
        print(f"{SHRINK}: kept {mib(kept)} of GPU code, dropped {mib(dropped)}")
        strip_symbols(tree / STRIP)
        pack(tree, archive)
        for part in split(archive, options.folder, int(options.part_mib * 2**20)):
            print(f"{part}: {mib(part.stat().st_size)}")
    return 0


def mib(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"


# ---- wheels ----


def download(packages: list[str], folder: Path) -> list[Path]:
    """Fetch each wheel unless it is there already; stop with the names of those that failed."""
    folder.mkdir(parents=True, exist_ok=True)
    wheels = [fetch(requirement, folder) for requirement in packages]
    if failed := [name for name, wheel in zip(packages, wheels, strict=True) if wheel is None]:
        sys.exit("no wheel for: " + ", ".join(failed))
    return wheels


def fetch(requirement: str, folder: Path) -> Path | None:
    """One wheel; None, and pip's reason on stderr, where there is none."""
    pattern = requirement.replace("-", "_").replace("==", "-") + "-*.whl"
    if not any(folder.glob(pattern)):
        words = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
        ]
        words += [
            "--only-binary=:all:",
            "--python-version",
            "3.12",
            "--implementation",
            "cp",
            "--dest",
            str(folder),
        ]
        words += [word for name in ("abi3", "cp312", "none") for word in ("--abi", name)]
        words += [word for name in PLATFORMS for word in ("--platform", name)]
        done = subprocess.run([*words, requirement], capture_output=True, text=True)
        if done.returncode:
            print(f"{requirement}: {done.stderr.strip()[-500:]}", file=sys.stderr)
    return next(iter(sorted(folder.glob(pattern))), None)


def unpack(wheels: list[Path], tree: Path) -> None:
    """All wheels into one tree; of a wheel's own scheme folders only the library ones belong there."""
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(tree)
    for data in tree.glob("*.data"):
        for scheme in ("purelib", "platlib"):
            if (data / scheme).is_dir():
                shutil.copytree(data / scheme, tree, dirs_exist_ok=True)
        shutil.rmtree(data)


# ---- what is left out ----


def remove(patterns: list[str], tree: Path) -> None:
    """Delete what the globs name; one that matches nothing means that the wheel is not the one we know."""
    for pattern in patterns:
        found = sorted(tree.glob(pattern))
        if not found:
            sys.exit(f"nothing to leave out for {pattern}: is this another version?")
        for path in found:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def strip_symbols(path: Path) -> None:
    """A smaller library, where there is `strip`."""
    if not shutil.which("strip"):
        print(f"no strip here: {path.name} stays at {mib(path.stat().st_size)} (it comes with binutils)")
        return
    subprocess.run(["strip", str(path)], check=True)


# ---- the archive ----


def pack(tree: Path, archive: Path) -> None:
    """tar.xz in a fixed order, without owners and times, so that the same wheels give the same bytes."""

    def plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
        info.uid = info.gid = info.mtime = 0
        info.uname = info.gname = ""
        info.mode = 0o755 if info.isdir() else 0o644
        return info

    with lzma.open(archive, "wb", preset=6) as packed, tarfile.open(fileobj=packed, mode="w") as tar:
        for path in sorted(each for each in tree.rglob("*") if each.is_file()):
            tar.add(path, path.relative_to(tree).as_posix(), filter=plain)


def split(archive: Path, folder: Path, size: int) -> list[Path]:
    """Parts of at most `size` bytes, in place of older ones; concatenated in order they are the archive."""
    for old in folder.glob("part-??"):
        old.unlink()
    parts = []
    with archive.open("rb") as whole:
        while block := whole.read(size):
            first, second = divmod(len(parts), 26)
            parts.append(folder / f"part-{string.ascii_lowercase[first]}{string.ascii_lowercase[second]}")
            parts[-1].write_bytes(block)
    return parts


if __name__ == "__main__":
    sys.exit(main())
