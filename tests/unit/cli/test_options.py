import click
import pytest
from click.testing import CliRunner

from zeus.cli.options import FiniteRange


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e400", "0"])
def test_a_number_that_is_none_is_refused(text: str) -> None:
    @click.command()
    @click.option("--timeout", type=FiniteRange(0, min_open=True))
    def command(timeout: float) -> None:
        raise AssertionError(timeout)

    done = CliRunner().invoke(command, [f"--timeout={text}"])
    assert done.exit_code == 2
    assert "--timeout" in done.output
