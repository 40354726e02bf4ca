"""`rerank retrieve`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from rerank.commands.command import Command
from rerank.commands.inputs import load_model
from rerank.commands.options import add_json, add_model, from_options, typed_options
from rerank.commands.printing import print_passages
from rerank.commands.queries import add_segment, typed_queries
from rerank.config import two_digits
from rerank.errors import InputError
from rerank.rag.settings import Strategy

if TYPE_CHECKING:
    from rerank.rag.adaptive import AdaptiveResult

CUT = 200  # characters of a passage that are printed
STOPPED = {  # by the reason of a result
    "threshold": "they are enough",
    "max_k": "the most that are allowed (--max-k)",
    "least_gain": "the next ones would add too little (--least-gain)",
    "no_more": "there are no more",
    "no_results": "none is similar enough to the question (--similarity-floor)",
    "no_passages": "no passage was found",
}


def _arguments(p: argparse.ArgumentParser) -> None:
    add_model(p)
    p.add_argument("query", metavar="QUERY", help="question in plain words")
    p.add_argument(
        "--strategy",
        metavar="NAME",
        help="kind of task, such as debugging, whose numbers are taken from a file of strategies",
    )
    p.add_argument(
        "--strategies", type=Path, help="TOML file of strategies (default: the bundled one)"
    )
    p.add_argument(
        "--guaranteed",
        action="store_true",
        help="as few passages as possible: for at most one question in twenty they lose an answer "
        "that the first ten hold, with 95%% confidence",
    )
    p.add_argument(
        "--second-tries",
        action="store_true",
        help="if the answer is not accepted, also try an expanded query, and the best passages of "
        "each stage",
    )
    add_segment(p)
    add_json(p)


def _strategy(o: argparse.Namespace) -> Strategy | None:
    """The strategy of the options; None for the model's guaranteed one.

    Raises:
        InputError: the strategy is unknown, or numbers are given too.
    """
    from rerank.rag.strategies import BUNDLED, strategy

    typed = typed_options(Strategy, o)
    if o.guaranteed:
        others = {
            "--strategy": o.strategy,
            "--strategies": o.strategies,
            "--second-tries": o.second_tries,
        }
        typed += [name for name, given in others.items() if given]
        if typed:
            raise InputError(f"--guaranteed chooses all numbers itself; remove {', '.join(typed)}")
        return None
    if not o.strategy:
        if o.strategies:
            raise InputError("--strategies names a file; say with --strategy which one to take")
        return from_options(Strategy, o)
    if typed:
        raise InputError(f"--strategy reads its numbers from a file; remove {', '.join(typed)}")
    return strategy(o.strategy, o.strategies or BUNDLED)


def _run(o: argparse.Namespace) -> None:
    from rerank.rag.adaptive import guaranteed, take

    chosen = _strategy(o)
    model = load_model(o)
    chosen = chosen or guaranteed(model.maps["search"])
    (found,) = model.assess(typed_queries(model, [o.query], o.segment))
    if o.second_tries:
        from rerank.rag.second_try import with_second_tries

        found = with_second_tries(model, found)
    result = take(found, chosen)
    if o.json:
        print(json.dumps({"query": o.query, **result.to_dict()}))
    else:
        _print(result, chosen.confidence_threshold)


def _print(result: AdaptiveResult, threshold: float) -> None:
    passages = "1 passage" if result.k == 1 else f"{result.k} passages"
    note = "" if result.assessment.calibrated else " (not calibrated)"
    confidence = two_digits(result.confidence, [threshold])
    why = STOPPED[result.stop_reason]
    print(f"{passages}, confidence {confidence}{note}, stopped by {result.stop_reason}: {why}")
    print_passages(result.passages, CUT, [threshold])


COMMAND = Command(
    "retrieve",
    "return as many passages as a query needs",
    'retrieve work/model "median along an axis while ignoring NaNs" --strategy debugging',
    _arguments,
    _run,
    config=Strategy,
)
