"""Command groups that suggest a command for a mistyped one, and show whole sentences in their help."""

from __future__ import annotations

import difflib

import click

#: The most characters of a command's line in `--help`, which is wrapped.
_LONGEST = 200


class SuggestingGroup(click.Group):
    """A group that says which command was probably meant. For options, click does this itself."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command. Raises UsageError for a name that is none, with the nearest names."""
        name = args[0]
        if name.startswith("-") or self.get_command(ctx, name) is not None:
            return super().resolve_command(ctx, args)
        near = difflib.get_close_matches(name, self.list_commands(ctx), n=3, cutoff=0.6)
        message = f'there is no command "{name}"'
        if near:
            message += f"; did you mean {' or '.join(near)}?"
        raise click.UsageError(message, ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # click would cut the first sentence of a command's help to one line.
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, found.get_short_help_str(_LONGEST)) for name, found in commands if found]
            )
