"""The table of results fits a terminal."""

import pytest

from ccfed.simulation.results import Table

ROWS = [
    {"method": "fedavg", "accuracy last %": "90.09 ± 1.16", "client-steps": "9,600", "up": "7.2 MB", "down": "7.2 MB"},
    {"method": "cc-fedavg", "accuracy last %": "89.17 ± 0.48", "client-steps": "4,740", "up": "7.2 MB", "down": "0 B"},
]


def test_plain_text_has_one_line_a_row() -> None:
    lines = str(Table(ROWS)).splitlines()
    assert lines[0] == "method     accuracy last %  client-steps      up    down"
    assert lines[3] == "cc-fedavg     89.17 ± 0.48         4,740  7.2 MB     0 B"
    assert len(lines) == 4
    assert Table(ROWS).text(len(lines[0])) == str(Table(ROWS))


@pytest.mark.parametrize("width", [1, 20, 26, 40, 55])
def test_columns_go_on_below_where_the_terminal_is_narrow(width: int) -> None:
    blocks = [block.splitlines() for block in Table(ROWS).text(width).split("\n\n")]
    assert len(blocks) > 1
    names = [name for block in blocks for name in block[0].split("  ") if name.strip()]
    assert [name.strip() for name in names if name.strip() != "method"] == list(ROWS[0])[1:]
    for block in blocks:
        assert block[2].startswith("fedavg")
        two_columns = len("cc-fedavg  accuracy last %")
        assert all(len(line) <= max(width, two_columns) for line in block)


def test_no_rows_no_text() -> None:
    assert Table([]).text(80) == ""
