"""HTML by construction: text is escaped wherever it enters, so that nothing a file says can become markup."""

import html
import json
import math
from typing import Any


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


def tag(name: str, *inside: str, **attributes: str | None) -> Html:
    """<name attribute="...">inside</name>; `inside` is escaped unless it is Html. `class_` is class, `data_x` is
    data-x, and an attribute that is None is left out."""
    told = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{name}{told}>{join(*inside)}</{name}>")


def join(*parts: str) -> Html:
    """`parts` one after another, escaped unless they are Html."""
    return Html("".join(part if isinstance(part, Html) else html.escape(part) for part in parts))


def embedded_json(value: Any) -> Html:
    """`value` as JSON that can stand inside a <script> element; numbers that are not finite become null."""
    text = json.dumps(_finite(value), ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return Html(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(inside) for key, inside in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inside) for inside in value]
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return int(value) if value == int(value) and abs(value) < 2**53 else float(f"{value:.6g}")
    return value
