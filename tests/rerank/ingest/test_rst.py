"""reStructuredText: headings, what Sphinx adds to it, and files that it may not read."""

from __future__ import annotations

from pathlib import Path

from rerank.ingest.rst import read

PAGE = """
=====
Guide
=====

:Date: 2022-03-04

Use :func:`the reader <reader.read>` and :class:`~a.b.Thing`, or ``code``.

.. toctree::

   other

Install
=======

.. py:function:: install(where)
   :module: x

   Installs it there.

.. AutoThing:: named

   Of its own case.

.. note:: Mind the gap.

.. only:: html

   For readers of pages.

.. ifconfig:: level > 3

   For experts.

.. code-block:: sh

   make
     install

.. include:: {secret}
"""


def test_a_page_is_read_with_what_sphinx_adds(tmp_path: Path) -> None:
    """Roles are their text, unknown directives their content; nothing is included."""
    secret = tmp_path / "secret.txt"
    secret.write_text("The password.")
    found = read(PAGE.format(secret=secret).encode())
    assert (found.title, found.revised) == ("Guide", "2022-03-04")
    texts = [block.text for block in found.blocks]
    assert "Use the reader and a.b.Thing, or code." in texts
    assert {"install(where)", "Installs it there.", "Mind the gap.", "make\n  install"} <= {*texts}
    assert {"named", "Of its own case."} <= {*texts}
    assert {"For readers of pages.", "For experts."} <= {*texts}
    assert not {"html", "level > 3"} & {*texts}
    assert not [text for text in texts if "password" in text or "other" in text]
    assert found.blocks[-1].heading[-1] == "Install"


def test_broken_markup_is_read_as_far_as_it_goes() -> None:
    """What is not closed, or indented wrongly, costs no page."""
    texts = [block.text for block in read(b"A *b\n\n  c\nd ``e\n\n.. foo:: x\n\nend").blocks]
    assert texts[-1] == "end"


def test_numbers_raised_text_formulas_and_deleted_text() -> None:
    """As a reader of the page sees them; what is elsewhere is counted."""
    page = r"""
3. Hold.
#. Wait.

10\ :sup:`6` and H\ :sub:`2`\ O, :del:`old` :math:`x^2`.

.. math:: \frac{a}{2}

.. image:: plan.png
   :alt: The door is north.

.. figure:: plan.png
   :scale: 50

   A plan.

.. include:: other.rst
"""
    found = read(page.encode())
    assert [block.text for block in found.blocks] == [
        *("3. Hold.", "4. Wait.", "10^6 and H2O, x^2.", "a/2", "The door is north.", "A plan.")
    ]
    assert found.skipped == "1 included file; 1 deleted word"


def test_a_table_of_another_file_is_counted() -> None:
    """The rows are not in the page."""
    found = read(b".. csv-table::\n   :header-rows: 1\n   :file: a.csv\n\nText.\n")
    assert ([b.text for b in found.blocks], found.skipped) == (["Text."], "1 included file")


def test_struck_out_words_are_counted() -> None:
    """At the start of a line, in roles that are known and those that a file defines."""
    found = read(b".. role:: strike\n\n:strike:`old one` new :del:`x`\n")
    assert [block.text for block in found.blocks] == ["new"]
    assert found.skipped == "3 deleted words"


def test_words_that_a_directive_or_a_role_prints_are_read() -> None:
    """Of versions, as Sphinx prints them, and of standards; the kind of a term is no part of it."""
    page = b".. deprecated:: 2.0\n\n.. versionadded:: 3.2\n   New.\n\nsize : int\n   See :pep:`8`."
    assert [block.text for block in read(page).blocks] == [
        *("Deprecated since version 2.0", "Added in version 3.2 New.", "size : int", "See PEP 8.")
    ]


def test_what_is_repeated_is_bounded_and_counted() -> None:
    """Substitutions, within each other too, and what stands around the number of each section."""
    long = ".. |a| replace:: " + "word " * 1900 + "\n\n" + "|a|\n\n" * 300
    nested = "".join(f".. |l{i}| replace:: " + f"|l{i - 1}| " * 10 + "\n" for i in range(1, 9))
    deep = f".. |l0| replace:: {'word ' * 99}\n{nested}\n|l8|"
    for text in (long, deep):
        found = read(text.encode())
        assert sum(len(block.text) for block in found.blocks) <= 100_000
        assert found.skipped.endswith("repeated substitutions")
    sections = "".join(f"T{i}\n=====\n\ntext\n\n" for i in range(99))
    found = read(f".. sectnum::\n   :prefix: {'P' * 9000}\n\n{sections}".encode())
    assert sum(len(block.text) for block in found.blocks) < 10_000
    few = read(b".. |v| replace:: 1.2\n.. |n| replace:: Cairn |v|\n\nWe have |n|, not |v|.\n")
    assert [few.blocks[0].text, few.skipped] == ["We have Cairn 1.2, not 1.2.", ""]


def test_a_long_line_is_read() -> None:
    """A paragraph on one line, as some programs write it, and what stands beside it."""
    found = read(f"Before.\n\n{'the word is long, ' * 999}\n\nAfter.\n".encode())
    assert sum(len(block.text) for block in found.blocks) > 17_000
    assert "After." in found.blocks[-1].text
