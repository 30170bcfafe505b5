"""The command line: commands are imported when called, and a mistake is one sentence."""

import inspect
import re
from collections import Counter
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption
from typer.main import get_group
from typer.models import ParameterInfo

import epifed
from epifed.cli import InterruptedByUser
from epifed.errors import EpifedError, speak

EXPECTED = (
    (r"valid integer", "a whole number"),
    (r"valid number", "a number"),
    (r"greater than or equal to (\S+)", r"at least {}"),
    (r"less than or equal to (\S+)", r"at most {}"),
    (r"greater than (\S+)", r"more than {}"),
    (r"less than (\S+)", r"less than {}"),
    (r"does not match the formats '%Y-%m-%d'", "a day such as 2020-11-30"),
)


def sentence(error: Any, typed: list[str]) -> str:
    """What a usage error of the library says, in one sentence.

    `typed` is all that stood behind the command's name.
    """
    context, parameter = error.ctx, getattr(error, "param", None)
    message = " ".join(error.format_message().split()).rstrip(".")
    if type(error).__name__ == "BadParameter" and parameter is not None:
        name = next(
            (option for option in parameter.opts if option.startswith("--")), parameter.opts[0]
        )
        value = _value(parameter.opts, typed)
        for pattern, expected in EXPECTED:
            if match := re.search(pattern, message):
                wanted = expected.format(*match.groups())
                return f"{name}: found {value}; expected {wanted}"
        return message[:1].lower() + message[1:]
    where = _path(context)
    return f"{message[:1].lower()}{message[1:]}; see '{where} --help'"


def _value(names: list[str], typed: list[str]) -> str:
    """What was given to an option; of several the last."""
    given = ""
    for i, word in enumerate(typed):
        name, equals, value = word.partition("=")
        if name in names:
            given = value if equals else next(iter(typed[i + 1 :]), "")
    return f"'{given}'"


def _path(context: Any) -> str:
    """The command as it is typed."""
    words = context.command_path.split() if context is not None else []
    inner = [word for word in words[1:] if word not in ("-m", "epifed")]
    return " ".join(["epifed", *inner])


COMMANDS = {
    "open": "Open a local page: drop a file on it and download a forecast.",
    "run": "Compare the learners with persistence at several privacy budgets, and write a report.",
    "reproduce": "Run the paper's experiment and compare it with the published tables.",
    "figures": "Draw every figure of the paper as PDF and PNG, and its tables as LaTeX, Markdown "
    "and CSV.",
    "report": "Write one HTML page with map, forecasts, intervals and the privacy guarantee.",
    "backtest": "Score past forecasts, each made only with the data known on its day.",
    "train": "Train one private forecaster on your data and write a release file.",
    "forecast": "Forecast the next one to four weeks from your own file.",
    "hub": "Compare the forecasts of several teams, or check a submission to a forecast hub.",
    "nowcast": "Estimate the cases of the last two weeks once all reports are in, and R(t).",
    "pretrain": "Fit a weekly forecaster on public data and write it as a small file.",
    "simulate": "Simulate an epidemic in an invented country and write a data directory.",
    "explain": "Print in plain sentences what a result guarantees, and what it does not.",
    "audit": "Test whether the deployed code keeps its privacy guarantee.",
    "calibrate": "Compute the noise multiplier for a budget ε, or the ε of a noise multiplier.",
    "data": "Check or convert a file of case counts, or download the official German file.",
    "ledger": "Record and limit the privacy budget over all trainings.",
    "federation": "Run a federation of separate machines over mutual TLS.",
}
"""Each command and the first sentence of its help.

The command NAME is the function NAME, or the group `app`, of `epifed.cli.NAME`.
"""
HOMES = {
    "backtest": "forecast",
    "calibrate": "ledger",
    "explain": "report",
    "figures": "paper",
    "nowcast": "forecast",
    "open": "report",
    "pretrain": "train",
    "reproduce": "paper",
    "simulate": "data",
}
"""The module of a command that shares one with its neighbours."""
ADVANCED = {
    "--accountant", "--archive", "--ask-every", "--command-minutes", "--confidence",
    "--date-column", "--delta", "--details", "--enrolled", "--format", "--generation-mean",
    "--generation-sd", "--json", "--model", "--model-name", "--resplit", "--rounds", "--scheduler",
    "--secure", "--seed", "--seeded", "--smoothing", "--table", "--truth-weeks", "--url",
    "--workers",
}  # fmt: skip
"""Options that few users need: --help lists them last."""


_UsageError: type[BaseException] = typer.BadParameter.__mro__[1]
TYPED = "epifed.typed"
"""Under which a context keeps what stood behind the command's name."""


class LazyGroup(TyperGroup):
    """A group that lists its commands without importing them, so that --help is quick."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, summary in COMMANDS.items():
            self.add_command(TyperCommand(name, help=summary))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take --lang from wherever it stands; it holds for every command."""
        speak(None)
        for place, word in enumerate(args):
            name, equals, value = word.partition("=")
            if name == "--lang" and "--" not in args[:place]:
                end = place + (1 if equals else 2)
                speak(value if equals else next(iter(args[place + 1 :]), ""))
                args = args[:place] + args[end:]
                break
        return super().parse_args(ctx, args)

    def make_context(self, *names: Any, **extra: Any) -> Any:
        """Look at what was typed; an interruption is for `main` to tell of."""
        try:
            return super().make_context(*names, **extra)
        except KeyboardInterrupt:
            raise InterruptedByUser from None
        except _UsageError as error:
            raise _mistake(error, []) from None

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was called; an interruption is for `main` to tell of."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise InterruptedByUser from None
        except _UsageError as error:
            raise _mistake(error, ctx.meta.get(TYPED, [])) from None

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Import the command that was called."""
        name, listed, rest = super().resolve_command(ctx, args)
        if name is None:
            return name, listed, rest
        command = load_command(name)
        ctx.meta[TYPED] = list(rest)
        refuse_repeated(ctx, command, rest)
        return name, command, rest


def _mistake(error: BaseException, typed: list[str]) -> BaseException:
    """A usage error as epifed's, but for a bare command that shows its help."""
    return error if "NoArgs" in type(error).__name__ else EpifedError(sentence(error, typed))


def refuse_repeated(ctx: Any, command: Any, args: list[str]) -> None:
    """Refuse an option that is given twice and taken once: the last would win in silence."""
    while args and args[0] in getattr(command, "commands", {}):
        command, args = command.commands[args[0]], args[1:]
    try:
        _, _, given = command.make_parser(type(ctx)(command)).parse_args(args=list(args))
    except _UsageError:
        return  # for the command to say
    for option, times in Counter(given).items():
        once = isinstance(option, TyperOption) and not (option.multiple or option.is_flag)
        if once and times > 1:
            raise EpifedError(f"{option.opts[0]}: found {times} times; expected it once")


def load_command(name: str) -> Any:
    """The command or group of this name."""
    module = import_module(f"epifed.cli.{HOMES.get(name, name)}")
    holder = typer.Typer(add_completion=False)
    if name not in HOMES and hasattr(module, "app"):
        holder.add_typer(module.app, name=name)
    else:
        holder.command(name)(getattr(module, name))
    _leave_files_to_us(holder)
    command = get_group(holder).commands[name]
    _lay_out_help(command)
    return command


def _lay_out_help(command: Any) -> None:
    """Fill the paragraphs of a command's help, and show rare options under "Advanced"."""
    for inner in getattr(command, "commands", {}).values():
        _lay_out_help(inner)
    paragraphs = (command.help or "").split("\n\n")
    command.help = "\n\n".join(" ".join(text.split()) for text in paragraphs)
    for option in command.params:
        if ADVANCED.intersection(option.opts) and not option.rich_help_panel:
            option.rich_help_panel = "Advanced"


def _leave_files_to_us(group: typer.Typer) -> None:
    """Let what cannot be read be told in epifed's sentence: the library would print a box."""
    for inner in group.registered_groups:
        if inner.typer_instance is not None:
            _leave_files_to_us(inner.typer_instance)
    for command in group.registered_commands:
        for parameter in inspect.signature(command.callback or (lambda: None)).parameters.values():
            for option in getattr(parameter.annotation, "__metadata__", ()):
                if isinstance(option, ParameterInfo):
                    option.readable = False


app = typer.Typer(
    name="epifed",
    cls=LazyGroup,
    help="Differentially private federated forecasting of local case numbers.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(asked: bool) -> None:
    if asked:
        print(f"epifed {epifed.__version__}")
        raise typer.Exit


@app.callback()
def _group(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Print the version and exit.",
        ),
    ] = False,
    lang: Annotated[
        str | None,
        typer.Option(
            metavar="en|de",
            help="Language of 'data check', 'forecast', errors and problem.txt.",
            show_default="the system's",
        ),
    ] = None,
) -> None:
    pass
