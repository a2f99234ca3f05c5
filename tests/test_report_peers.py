"""What the report says of peers as they come, and with a setting that suits them better."""

import pytest
from small_results import MODEL, answer, store

from experiments import report_fits
from experiments.report_results import Archive
from experiments.report_table import ABSENT

OURS = [
    answer("minillm", "resident", q, s, path="fast", device_gb_s=3800.0) for q, s in ((1, 10.0), (2, 30.0))
]


@pytest.fixture
def archive(tmp_path):
    return Archive(tmp_path)


def test_peers_stand_beside_themselves_as_installed(archive):
    assert report_fits.peer_settings(archive).rows == ABSENT

    def theirs(setting, speed, **more):
        row = answer("transformers", "resident", 1, speed, path=setting)
        return row | {"key": f"{MODEL}/transformers/resident-{setting}/1"} | more

    offloaded = {
        "engine": "accelerate",
        "mode": "offloaded",
        "resident": 12,
        "key": f"{MODEL}/accelerate/x/0",
    }
    store(
        archive,
        "peer_settings",
        [
            *OURS,
            theirs("as installed", 2.0),
            theirs("without cuDNN", 5.0),
            theirs("as installed", 0.5, **offloaded),
            {**offloaded, "model": MODEL, "path": "without cuDNN", "failed": "no memory"},
        ],
    )
    table = report_fits.peer_settings(archive)
    assert [(*row[1:3], *row[4:5], *row[6:]) for row in table.rows] == [
        ("minillm", "fast", "20.0", "–", "–"),
        ("transformers", "as installed", "2.0", "1.00", "5.0"),
        ("transformers", "without cuDNN", "5.0", "2.50", "2.0"),
    ]
    table = report_fits.peer_settings(archive, offloaded=True)
    assert [row[1:] for row in table.rows] == [
        ("accelerate offloaded", "without cuDNN", "not measured: no memory"),
        ("accelerate offloaded", "as installed", "1 × 256", "0.500", "–", "1.00"),
    ]


def test_a_peer_as_installed_says_what_it_would_gain(archive):
    rows = [*OURS, answer("transformers", "resident", 1, 2.0)]
    store(archive, "vllm", rows)
    gain = {"name": f"{MODEL} resident: decode tok/s, transformers without cuDNN over as installed"}
    assert not any("cuDNN" in note for note in report_fits.resident(archive, "vllm", MODEL).notes)
    store(archive, "peer_settings", [], checks=[gain | {"value": 1.9, "goal": None, "met": None}])
    (note,) = (note for note in report_fits.resident(archive, "vllm", MODEL).notes if "cuDNN" in note)
    assert "1.9 times as fast" in note
    store(archive, "vllm", OURS)
    assert not any("cuDNN" in note for note in report_fits.resident(archive, "vllm", MODEL).notes)
