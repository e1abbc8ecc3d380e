"""Configs with something wrong in them: each fault in one line, with the file, the line and the key; and never anything else."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway import config
from gateway.app import channel_types
from gateway.errors import ConfigErrors
from tests.flow.daemon import REPO
from tests.fuzz.hostile import garbled, tried

EXAMPLE = re.sub(r"^#(?=[a-z_]+ = |\[)", "", (REPO / "config.example.toml").read_text(), flags=re.MULTILINE)
VALUES = [
    *('""', '"x"', "0", "-1", "1e400", "nan", "9" * 400, "true", "[]", "[1]", '["a", ""]', "{}", "{a = 1}", "1979-05-27", "07:32:00"),
    *('"1h1h"', '"-5s"', '"99999999999999999999d"', '"1 EiB"', '"\\u0000"', '"\\uD800"', "'''x\ny'''"),
    *('"http://"', '"http://[::1"', '"unix:relative"', '"127.0.0.1:99999"'),
]
LINE = re.compile(r"^([a-z_]+) = .*$", re.MULTILINE)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("config") / "config.toml"


def faults(path: Path, text: bytes) -> list[tuple[int, str, str]] | None:
    """None where there are none."""
    path.write_bytes(text)
    path.chmod(0o600)
    try:
        config.load(path, channel_types(), {})
    except ConfigErrors as error:
        for fault in error.faults:
            assert str(fault).startswith(str(path)), str(fault)
            assert "\n" not in str(fault)
            assert "Traceback" not in str(fault)
        return [(fault.line, fault.key, fault.text) for fault in error.faults]
    return None


def test_the_example_is_whole(path: Path) -> None:
    """With every option out of its comment there is nothing to say but about secrets and addresses that it leaves empty."""
    assert len(LINE.findall(EXAMPLE)) > 40
    for line, key, text in faults(path, EXAMPLE.encode()) or []:
        assert line or key, text


@tried(60)
@given(st.randoms(use_true_random=True))
def test_a_value_of_another_kind_is_told_with_its_line(path: Path, dice: Random) -> None:
    """Whichever option it is, and whatever stands there: a config, or its line among the faults. Nothing new is said of other lines."""
    known = {(key, text) for _, key, text in faults(path, EXAMPLE.encode()) or []}
    found = dice.choice(list(LINE.finditer(EXAMPLE)))
    changed = EXAMPLE[: found.start()] + f"{found[1]} = {dice.choice(VALUES)}" + EXAMPLE[found.end() :]
    at = EXAMPLE.count("\n", 0, found.start()) + 1
    new = [one for one in faults(path, changed.encode()) or [] if (one[1], one[2]) not in known]
    for line, key, text in new:
        assert text
        assert line == at or found[1] not in key, (changed.splitlines()[at - 1], new)


@tried(60)
@given(st.randoms(use_true_random=True))
def test_bytes_that_changed_are_faults_at_most(path: Path, dice: Random) -> None:
    """Anywhere in the file."""
    faults(path, garbled(dice, [EXAMPLE.encode()]))
