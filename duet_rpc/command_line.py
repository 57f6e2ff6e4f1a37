"""The commands and options of duet-rpc: one table, and the parser that reads it.

The parser, the help (`terminal.help`) and the errors are all made from the table, so a
command or an option is described in one place. `argparse` is not used because every start
of the daemon passes through here, and importing it costs more time than parsing does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from duet_rpc.jsonrpc.framing import FRAMINGS
from duet_rpc.program import program_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SHOWN_MAX = 60
"""Characters of an unknown word that an error message shows."""


# Plain classes: to make a NamedTuple takes 0.4 ms on CPython 3.11.


class Command:
    """A command: `summary` is its line in the general help, `description` opens its own."""

    def __init__(self, name: str, summary: str, description: str, operands: str = "") -> None:
        self.name = name
        self.summary = summary
        self.description = description
        self.operands = operands


class Option:
    """An option: `value` names its value in the help and is empty for a switch.

    `commands` are the commands it belongs to; empty means all of them. `choices` are the
    values it takes, in any case; without choices, `accepts` says what the value is.
    """

    def __init__(
        self,
        name: str,
        summary: str,
        commands: tuple[str, ...] = (),
        value: str = "",
        choices: tuple[str, ...] = (),
        accepts: str = "",
        short: str = "",
    ) -> None:
        self.name = name
        self.summary = summary
        self.commands = commands
        self.value = value
        self.choices = choices
        self.accepts = accepts
        self.short = short

    @property
    def attribute(self) -> str:
        """The attribute of `Options` that holds it."""
        return self.name[2:].replace("-", "_")

    @property
    def expected(self) -> str:
        """What its value may be, for a message."""
        if self.choices:
            return f"{', '.join(self.choices[:-1])} or {self.choices[-1]}"
        return self.accepts


COMMANDS = (
    Command(
        "rpc",
        "serve JSON-RPC 2.0 on stdin and stdout; Emacs starts it",
        "Serve the built-in methods and your own as JSON-RPC 2.0 on stdin and stdout, until "
        "stdin is closed, `shutdown` is called or a signal arrives.",
    ),
    Command(
        "mcp",
        "serve the methods as tools to an AI client (MCP)",
        "Serve your methods as tools, and your resources and prompts, on stdin and stdout to an "
        "AI client that speaks the Model Context Protocol.",
    ),
    Command(
        "gateway",
        "serve like rpc, with the configured [backends] behind it",
        "Serve JSON-RPC 2.0 on stdin and stdout and route the method NAME/METHOD to the server "
        "that [backends.NAME] of the configuration describes.",
    ),
    Command(
        "call",
        "call a method and print its result",
        "Call METHOD in a new daemon and print its result as JSON. ARG is name=value (the value "
        "is read as JSON where it is valid JSON, else as text), one JSON object or array, or - "
        "for JSON on stdin. Options end at --.",
        "METHOD [ARG]...",
    ),
    Command(
        "console",
        "call methods at a prompt",
        "Start a daemon and call its methods at a prompt, with history and completion. Each line "
        "has the form of the arguments of `call`.",
    ),
    Command(
        "new",
        "write a first file of methods",
        "Write NAME.py, a method that runs, into the folder of your methods, and print its path.",
        "NAME",
    ),
    Command(
        "list",
        "list your methods",
        "List your methods by file, each with its signature and the first line of its "
        "description, and the files that could not be loaded.",
    ),
    Command(
        "doctor",
        "find problems and say how to fix them",
        "Check Python, the program, the configuration, the log, your methods, the backends and "
        "Emacs. The exit code is 1 if something does not work.",
    ),
    Command(
        "env",
        "list the environments made for your methods",
        "List the environments that were made for files with a `# /// script` block: what each "
        "holds, its Python, its size, when it was last used and by which file.",
    ),
    Command(
        "config",
        "show the settings in force and where each comes from",
        "Print each setting that is in force here, with its value and the file, variable or "
        "option that it comes from.",
    ),
    Command(
        "trust",
        "let this project's .duet-rpc.toml name code to run",
        "Show what the nearest .duet-rpc.toml would run, ask, and record the answer. The record "
        "holds for the file as it is now: a change withdraws the trust.",
    ),
    Command(
        "untrust",
        "withdraw that trust",
        "Withdraw the trust in the nearest .duet-rpc.toml.",
    ),
    Command("version", "print the version", "Print the version of duet-rpc."),
)

OPTIONS = (
    Option(
        "--methods",
        "load methods from a Python file or module; repeatable",
        ("rpc", "mcp", "call", "console", "list", "doctor"),
        value="SOURCE",
        accepts="a Python file or the name of a module",
    ),
    Option(
        "--framing",
        f"how messages are delimited: {', '.join(FRAMINGS)} or auto; the first is the default",
        ("rpc",),
        value="FRAMING",
        choices=(*FRAMINGS, "auto"),
    ),
    Option("--batch", "accept batches: arrays of requests", ("rpc", "mcp")),
    Option("--gateway", "serve the tools of the [backends] as well", ("mcp",)),
    Option("--emacs", "let your methods use the running Emacs, and offer tools in Lisp", ("mcp",)),
    Option(
        "--server-name",
        "the Emacs that --emacs means, by its server-name or the path of its socket",
        ("mcp",),
        value="NAME",
        accepts="the server-name of an Emacs, or the path of its socket",
    ),
    Option("--check", "start each backend and print how it responds", ("gateway",)),
    Option("--pdb", "stop in the debugger where the method fails", ("call",)),
    Option("--all", "list the built-in methods as well", ("list",)),
    Option("--json", "print the report as JSON", ("doctor", "list", "env")),
    Option("--prune", "remove the environments that were not used for 30 days", ("env",)),
    Option("--yes", "record the trust without asking", ("trust",)),
    Option(
        "--debug",
        "for authors of methods: errors with their text and their traceback",
        ("rpc", "mcp", "gateway", "call", "console"),
    ),
    Option(
        "--log-level",
        "log from this level on: debug, info, warn or error",
        value="LEVEL",
        choices=("debug", "info", "warn", "error"),
    ),
    Option("--no-color", "no colour, not even on a terminal"),
    Option("--version", "print the version and exit"),
    Option("--help", "print help, on a command if one is given, and exit", short="-h"),
)

VARIABLES = {
    "DUET_RPC_LOG": "log to this file instead of stderr",
    "DUET_RPC_CONFIG": "read this configuration file and no other",
    "NO_COLOR": "no colour, if not empty",
}


class UsageError(Exception):
    """The command line cannot be understood; the text says what is wrong with it."""

    def __init__(self, message: str, command: str | None = None) -> None:
        super().__init__(message)
        self.command = command


class Options:
    """The options that were given, each under the name it has in the table."""

    def __init__(self) -> None:
        self.methods: list[str] = []
        self.framing: str | None = None
        self.batch = False
        self.gateway = False
        self.emacs = False
        self.server_name: str | None = None
        self.check = False
        self.pdb = False
        self.all = False
        self.json = False
        self.prune = False
        self.yes = False
        self.debug = False
        self.log_level: str | None = None
        self.no_color = False
        self.version = False
        self.help = False


class Arguments:
    """A parsed command line. Only `call` and `new` have operands."""

    def __init__(self) -> None:
        self.command: str | None = None
        self.operands: list[str] = []
        self.options = Options()


def parse(words: Sequence[str]) -> Arguments:
    """Parse the words behind the program's name; raise UsageError where they are wrong."""
    arguments = Arguments()
    given: list[Option] = []
    rest = iter(words)
    for word in rest:
        if word == "--" and arguments.command == "call":
            arguments.operands += rest
        elif word.startswith("-") and word != "-":
            given.append(_parse_option(word, rest, arguments))
        elif arguments.command == "call" or (arguments.command == "new" and not arguments.operands):
            arguments.operands.append(word)
        elif arguments.command is not None:
            message = f"unexpected argument {shorten(word)} after {arguments.command}"
            raise UsageError(message, arguments.command)
        else:
            arguments.command = find_command(word).name
    if not arguments.options.help and not arguments.options.version:
        _check_combination(arguments, given)
    return arguments


def find_command(name: str) -> Command:
    """Return the command of this name; raise UsageError where there is none."""
    for command in COMMANDS:
        if command.name == name:
            return command
    names = [command.name for command in COMMANDS]
    raise UsageError(_unknown("command", name, names, f"{program_name()} --help lists all"))


def options_of(command: str) -> list[Option]:
    """Return the options that a command takes."""
    return [each for each in OPTIONS if not each.commands or command in each.commands]


def usage(command: str | None = None) -> str:
    """Return the usage line of a command, or of the program."""
    if command is None:
        return f"usage: {program_name()} [OPTION]... COMMAND"
    operands = find_command(command).operands
    return f"usage: {program_name()} {command} [OPTION]... {operands}".rstrip()


def daemon_flags(options: Options, level: str, methods: bool = True) -> list[str]:
    """Return the options for a server that this command starts."""
    sources = options.methods if methods else []
    given_methods = [word for source in sources for word in ("--methods", source)]
    switches = {"--no-color": options.no_color, "--debug": options.debug}
    given = [name for name, is_given in switches.items() if is_given]
    return ["--log-level", level, *given, *given_methods, *emacs_flags(options)]


def emacs_flags(options: Options) -> list[str]:
    """Return the options that name an Emacs, for a worker of `mcp`."""
    name = ["--server-name", options.server_name] if options.server_name else []
    return ["--emacs", *name] if options.emacs else []


def shorten(word: str) -> str:
    """Return a word in quotes for a message: one line, of limited length."""
    return repr(word if len(word) <= SHOWN_MAX else word[: SHOWN_MAX - 1] + "…")


def _parse_option(word: str, rest: Iterator[str], arguments: Arguments) -> Option:
    """Store the option that a word begins, with its value from `rest` where it needs one."""
    name, equals, value = word.partition("=")
    option = _find_option(name, arguments.command)
    if not option.value:
        if equals:
            raise UsageError(f"{name} takes no value", arguments.command)
        setattr(arguments.options, option.attribute, True)
        return option
    value = value if equals else next(rest, "")
    if not value:
        what = f"{name} needs a {option.value.lower()}: {option.expected}"
        raise UsageError(what, arguments.command)
    if option.choices:
        if value.lower() not in option.choices:
            kind = option.attribute.replace("_", " ")
            message = _unknown(kind, value, option.choices, option.expected)
            raise UsageError(message, arguments.command)
        setattr(arguments.options, option.attribute, value.lower())
    else:
        given = getattr(arguments.options, option.attribute)
        if isinstance(given, list):
            given.append(value)
        else:
            setattr(arguments.options, option.attribute, value)
    return option


def _find_option(name: str, command: str | None) -> Option:
    for option in OPTIONS:
        if name in (option.name, option.short):
            return option
    offered = OPTIONS if command is None else options_of(command)
    program = program_name() if command is None else f"{program_name()} {command}"
    names = [option.name for option in offered]
    raise UsageError(_unknown("option", name, names, f"{program} --help lists all"), command)


def _check_combination(arguments: Arguments, given: list[Option]) -> None:
    """Refuse an option of another command, and a command without what it needs."""
    command = arguments.command
    for option in given:
        if option.commands and command not in option.commands:
            where = ", ".join(option.commands)
            what = "but no command was given" if command is None else f"not of {command}"
            raise UsageError(f"{option.name} is an option of {where}, {what}", command)
    if command == "call" and not arguments.operands:
        hint = f"`{program_name()} call listMethods` lists them"
        raise UsageError(f"call needs a METHOD; {hint}", command)
    if command == "new" and not arguments.operands:
        raise UsageError("new needs a NAME for the file, such as words", command)
    if arguments.options.server_name and not arguments.options.emacs:
        message = "--server-name says which Emacs --emacs means; add --emacs"
        raise UsageError(message, arguments.command)


def _unknown(kind: str, word: str, names: Sequence[str], hint: str) -> str:
    from duet_rpc.suggestions import did_you_mean

    nearest = did_you_mean(word, names)
    return f"unknown {kind} {shorten(word)}{nearest and f'; {nearest}'} ({hint})"
