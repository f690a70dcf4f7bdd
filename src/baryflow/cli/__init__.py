"""The command line: data on standard output, messages on standard error.

A command is a click command in the module of its name (``add-source`` is ``add_source`` in
``add_source.py``) and an entry in :data:`COMMANDS`. Its module is imported when it is used.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import click

#: Commands and their summaries, in the order of ``--help``, which imports none of them.
COMMANDS = {
    "fit": "Learn labelled sources from files and write a model.",
    "evaluate": "Test by leave-one-domain-out whether adapting helps on your files.",
    "add-source": "Add one labelled source to a model.",
    "run": "Follow a stream with a model: predict each row, then learn from it.",
    "predict": "Label the rows of a file with a model, without learning from them.",
    "forward": "Send the rows of a stream to a service.",
    "backfill": "Follow many targets in a folder of Parquet files, on Dask.",
    "serve": "Serve a model over HTTP: many targets, each with its own copy.",
    "report": "Print what a model has learned and decided.",
    "plot": "Draw how a model has followed its target.",
    "inspect": "Describe the contents of a .bary file.",
    "demo": "Adapt to an unseen mode of the Tennessee Eastman plant.",
    "tep": "Build the Tennessee Eastman benchmark from the simulated plant.",
}
#: Section of the configuration file that is not one of a command.
ALARMS = "alarms"
#: Read from the working directory if it exists.
CONFIG = Path("baryflow.toml")
_HELP = ("-h", "--help")


class LazyGroup(click.Group):
    """The group of :data:`COMMANDS`, which also takes their options from a TOML file."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names of the commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import a command."""
        if cmd_name not in COMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        command: click.Command = getattr(import_module(f"{__name__}.{name}"), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the summaries without importing the commands."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, and take its defaults from the configuration file."""
        if args[0] not in COMMANDS:
            raise click.NoSuchCommand(args[0], possibilities=COMMANDS, ctx=ctx)
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None and command is not None and not set(rest) & set(_HELP):
            content, where = _read_config(ctx.params.get("config"), name, ctx)
            ctx.obj = content.get(ALARMS)
            ctx.default_map = {name: _to_defaults(content.get(name, {}), command, where, ctx)}
        return name, command, rest


@click.group(
    cls=LazyGroup,
    context_settings={
        "help_option_names": list(_HELP),
        "auto_envvar_prefix": "BARYFLOW",
        "show_default": True,
    },
)
@click.version_option(package_name="baryflow", allow_from_autoenv=False)
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help=f"TOML file with options of the commands.  [default: {CONFIG}, if it exists]",
)
def main(config: Path | None) -> None:
    """Adapt a classifier from many labelled sources to one live, unlabelled target.

    Every option can also come from the environment (BARYFLOW_RUN_BATCH_SIZE=64) or from a TOML file
    (batch-size = 64 under [run]). The command line wins over the environment,
    and the environment over the file. The section [alarms] of the file turns alarms on.
    """


def _read_config(config: Path | None, name: str, ctx: click.Context) -> tuple[dict[str, Any], str]:
    """Return the content of the configuration file, and what to call the section of a command."""
    path = config or CONFIG
    if not path.is_file():
        return {}, ""
    import tomllib

    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{path} is not valid TOML: {error}", ctx) from error
    except RecursionError as error:
        raise click.UsageError(f"{path} is nested too deeply to be read", ctx) from error
    for section, values in content.items():
        if section not in (*COMMANDS, ALARMS) or not isinstance(values, dict):
            raise click.UsageError(
                f"{path}: {section!r} is not a command; options belong in the section of their "
                f"command, such as [{name}]",
                ctx,
            )
    return content, f"{path}, [{name}]"


def _to_defaults(
    values: dict[str, Any], command: click.Command, where: str, ctx: click.Context
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if isinstance(command, click.Group):
        known: dict[str, Any] = dict(command.commands)
    else:
        options = [option for option in command.params if isinstance(option, click.Option)]
        known = {name.removeprefix("--"): option for option in options for name in option.opts}
        known = {name: option for name, option in known.items() if not name.startswith("-")}
    for key, value in values.items():
        if key not in known:
            names = ", ".join(sorted(known))
            raise click.UsageError(f"{where}: unknown key {key!r}; known keys: {names}", ctx)
        if isinstance(known[key], click.Command):
            if not isinstance(value, dict):
                raise click.UsageError(f"{where}: {key!r} must be a section of options", ctx)
            found[key] = _to_defaults(value, known[key], f"{where[:-1]}.{key}]", ctx)
        else:
            found[known[key].name] = _to_text(value, known[key], f"{where}: {key!r}", ctx)
    return found


def _to_text(value: Any, option: click.Option, what: str, ctx: click.Context) -> Any:
    """Return a value as it would stand on the command line; a flag stays true or false."""
    if option.is_flag != isinstance(value, bool):
        raise click.UsageError(
            f"{what} must be {'true or false' if option.is_flag else 'a number or text'}, got {value!r}",
            ctx,
        )
    if option.multiple:
        values = value if isinstance(value, list) else [value]
        return [str(one) for one in values]
    if isinstance(value, dict | list):
        raise click.UsageError(f"{what} must be one value, got {value!r}", ctx)
    return value if option.is_flag else str(value)
