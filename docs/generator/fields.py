"""What the code says of a field becomes its text in the API reference.

That is the comment behind the field, or the help of an `option(default, help)`, whose default is
then shown alone.
"""

from __future__ import annotations

import ast

from griffe import Attribute, Docstring, Extension

OPTIONS = ("option", "share")


class Fields(Extension):
    """Texts and defaults of the fields of classes."""

    def on_attribute_instance(self, *, node: object, attr: Attribute, **_: object) -> None:
        """Give an attribute of a class its text, if it has no docstring."""
        if attr.docstring or not isinstance(node, ast.AnnAssign) or not attr.parent.is_class:
            return
        value = node.value
        if isinstance(value, ast.Call) and getattr(value.func, "id", "") in OPTIONS:
            attr.value, text = ast.unparse(value.args[0]), ast.literal_eval(value.args[1])
        else:
            text = _comment(attr)
        if text:
            attr.docstring = Docstring(text, parent=attr)


def _comment(attr: Attribute) -> str:
    """The comment behind the last line of an attribute."""
    line = attr.lines_collection[attr.filepath][attr.endlineno - 1]
    return line.partition("  # ")[2]
