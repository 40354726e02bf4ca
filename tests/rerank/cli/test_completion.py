"""`rerank completion`: the script in a real shell."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from command_line import call, refused
from processes import run_python

ASK = """
source {script}
COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_shtab_rerank
echo "${{COMPREPLY[@]}}"
"""


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("rerank cal", ["calibrate"]),
        ("rerank calibrate --metadata-f", ["--metadata-features"]),
        ("rerank dataset im", ["import-trec"]),
    ],
)
def test_bash_completes(
    words: str, expected: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Commands, and the options of the command that stands before."""
    assert call("completion", "bash") == 0
    script = tmp_path / "completion.sh"
    script.write_text(capsys.readouterr().out)
    asked = ASK.format(script=script, words=words)
    shell = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, check=True)
    assert shell.stdout.split() == expected


def test_another_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """With those that are known."""
    assert "bash" in refused(capsys, "completion", "powershell")


def test_a_reader_that_has_enough() -> None:
    """As `rerank completion bash | head -1`: there is no message."""
    code = """
import subprocess, sys
command = [sys.executable, "-m", "rerank.cli", "completion", "bash"]
with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as made:
    made.stdout.close()
    print(made.stderr.read().decode(), made.wait())
"""
    assert run_python(code).split() == ["141"]
