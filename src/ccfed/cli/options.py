"""A command's options from a dataclass, with help that reads well: its docstring, one type and one default each."""

import ast
import dataclasses
import inspect
import itertools
import shutil
import textwrap
import types
from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import tyro

T = TypeVar("T")


def read_options(kind: type[T], arguments: Sequence[str], program: str, default: T | None = None) -> T:
    """The options of the dataclass `kind` in `arguments`, on top of those in `default`.

    A field that is itself a dataclass has its options among the others. What happens where an option is None or
    empty unless given, its docstring says. Ends as tyro does after --help and for words that are no options.
    """
    told = _told(kind)
    begin = None if default is None else _copied(default, told)
    found = tyro.cli(
        told,
        args=list(arguments),
        prog=program,
        default=begin,
        description=_wrapped(inspect.getdoc(kind) or ""),
        config=(tyro.conf.FlagCreatePairsOff,),
    )
    return cast(T, _copied(found, kind))


def _wrapped(words: str) -> str:
    """Paragraphs in lines that fit the terminal; indented, since tyro joins lines that begin with a letter."""
    width = max(min(shutil.get_terminal_size().columns, 100), 20)
    fill = textwrap.TextWrapper(width, initial_indent=" ", subsequent_indent=" ", break_on_hyphens=False).fill
    return "\n\n".join(fill(" ".join(each.split())) for each in words.split("\n\n"))


def _told(kind: type[Any]) -> type[Any]:
    """A dataclass like `kind` whose fields say how they are to be explained."""
    hints, words = get_type_hints(kind, include_extras=True), _docstrings(kind)
    made: list[Any] = []
    for field in dataclasses.fields(kind):
        annotated = get_origin(hints[field.name]) is Annotated
        hint, *extras = get_args(hints[field.name]) if annotated else [hints[field.name]]
        default: dict[str, Any] = {"default": field.default, "default_factory": field.default_factory}
        given = {name: value for name, value in default.items() if value is not dataclasses.MISSING}
        if dataclasses.is_dataclass(hint):
            inner = _told(cast(type[Any], hint))
            shown: Any = Annotated[inner, tyro.conf.arg(name="")]
            if given:
                value = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
                given = {"default": _copied(value, inner)}
        else:
            ours = tyro.conf.arg(help=words.get(field.name), metavar=_metavar(hint), help_behavior_hint=_default)
            shown = Annotated[hint, ours]
            for extra in extras:  # what the field says itself wins
                shown = Annotated[shown, extra]
        made.append((field.name, shown, dataclasses.field(**given)))
    return dataclasses.make_dataclass(kind.__name__, made, frozen=True, namespace={"__doc__": kind.__doc__})


def _copied(value: Any, kind: type[Any]) -> Any:
    """`value` as an object of `kind`, which has the same fields; likewise the dataclasses inside."""
    hints = get_type_hints(kind)
    parts = {field.name: getattr(value, field.name) for field in dataclasses.fields(kind)}
    return kind(
        **{name: _copied(part, hints[name]) if dataclasses.is_dataclass(part) else part for name, part in parts.items()}
    )


def _docstrings(kind: type[Any]) -> dict[str, str]:
    """The docstring below each field of `kind`, in one line."""
    found = {}
    for base in reversed(kind.__mro__[:-1]):
        body = cast(ast.ClassDef, ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]).body
        for field, below in itertools.pairwise(body):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                match below:
                    case ast.Expr(ast.Constant(str() as words)):
                        found[field.target.id] = " ".join(words.split())
    return found


def _metavar(hint: Any) -> str | None:
    """One word for what is to be given: FLOAT, PATH, FLOAT... for several; the words themselves of a Literal."""
    kinds = [each for each in get_args(hint) if each is not type(None)]
    if get_origin(hint) in (Union, types.UnionType):
        return _metavar(kinds[0]) if len(kinds) == 1 else None
    if get_origin(hint) is tuple and len(kinds) == 2 and kinds[1] is ...:
        return f"{_metavar(kinds[0])}..."
    if get_origin(hint) is Literal:
        return "|".join(map(str, kinds))
    return None if hint is bool else str(getattr(hint, "__name__", hint)).upper()


def _default(label: str) -> str:
    return "" if label in ("None", "", "False") else f"(default: {label})"
