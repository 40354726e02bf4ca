"""What changes after calibration: how far the confidence decays, and whether drift tells.

    python tests/bench/changes.py growing SET ...    the corpus doubles
    python tests/bench/changes.py forms SET ...      passages that differ in one name or number
    python tests/bench/changes.py asked SET OTHER    questions of another kind

Half of the groups of questions calibrate; the others are measured, before the change and after it.
Questions that our models or pooled maps have seen are left out.

growing: half of the documents, drawn at random, are the first corpus, the whole set is the second
one. Each measured question has the same right passages in both: only wrong ones are added, or some
that nobody has judged.

forms: only questions that share a name or a number with their right passage. After the change, each
of these passages has three copies in which every shared name and number is another one of the
corpus: they answer the same question about somebody else. The third line is calibrated on them.

asked: SET and OTHER are questions over one corpus. Those of SET calibrate. OTHER is measured, then
calibrated on and measured.

Prints one line a measurement.
"""

from __future__ import annotations

import argparse
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rerank import LabelledSet, calibrate, load
from rerank.assessment.fitted_maps import pooled_over
from rerank.config import Config
from rerank.data.grouping import grouped
from rerank.data.words import STOP_WORDS
from rerank.fitting.plan import unseen
from rerank.inference.model_files import trained_on
from rerank.jobs.evaluate import detect_drift, evaluate
from rerank.jobs.pipelines import find_models, pipeline_over
from rerank.storage.folder import Workspace
from rerank.training.mining import NAME, NUMBER
from rerank.types import Passage

COPIES = 3


def asked_ids(whole: LabelledSet) -> list[str]:
    """The queries of the splits that no model and no pooled map has seen, in order."""
    models, config = find_models(Config())
    ids = sorted({i for split in whole.splits.values() for i in split})
    return unseen(whole, ids, trained_on(*models) | pooled_over(models, config))


def split_in_two(
    whole: LabelledSet, ids: Sequence[str], most: int, rng: random.Random
) -> LabelledSet:
    """At most `most` of the queries, half of their groups in `train` and half in `test`."""
    ids = sorted(rng.sample(ids, min(most, len(ids))))
    groups = grouped(whole, ids).select(ids).groups.tolist()
    names = sorted(set(groups))
    rng.shuffle(names)
    fit = {name for at, name in enumerate(names) if at % 2}
    splits = {
        "train": tuple(i for i, g in zip(ids, groups, strict=True) if g in fit),
        "test": tuple(i for i, g in zip(ids, groups, strict=True) if g not in fit),
    }
    return replace(
        whole,
        queries={i: whole.queries[i] for i in ids},
        qrels={i: whole.qrels[i] for i in ids if i in whole.qrels},
        splits=splits,
        grouping=None,
    )


def halved(whole: LabelledSet, most: int, rng: random.Random) -> tuple[LabelledSet, LabelledSet]:
    """The set over half of its documents, and the same questions over all of them."""
    documents = {i: p.metadata.get("document") or p.title or i for i, p in whole.corpus.items()}
    right = sorted({documents[d] for i in asked_ids(whole) for d in whole.relevant(i)})
    others = sorted(set(documents.values()) - set(right))
    kept = {*rng.sample(right, len(right) // 2), *rng.sample(others, len(others) // 2)}
    corpus = {i: p for i, p in whole.corpus.items() if documents[i] in kept}
    ids = [i for i in asked_ids(whole) if all(d in corpus for d in whole.relevant(i))]
    both = split_in_two(whole, ids, most, rng)
    return replace(both, corpus=corpus, name=f"{whole.name}-half"), both


def with_forms(
    whole: LabelledSet, most: int, rng: random.Random
) -> tuple[LabelledSet, LabelledSet]:
    """The questions that share names or numbers with their answers, without and with the copies."""
    shared = {i: shared_with_answers(whole, i) for i in asked_ids(whole)}
    plain = split_in_two(whole, [i for i, words in shared.items() if words], most, rng)
    pools: dict[str, list[str]] = {}
    for word in sorted({w for p in whole.corpus.values() for w in words_of(p.text)}):
        pools.setdefault(kind(word), []).append(word)
    copies = [
        form(whole.corpus[doc_id], shared[i], f"{i}-{n}", pools, rng)
        for i in plain.queries
        for doc_id in sorted(whole.relevant(i))
        for n in range(COPIES)
    ]
    corpus = {**whole.corpus, **{p.doc_id: p for p in copies}}
    return plain, replace(plain, corpus=corpus, name=f"{whole.name}-forms")


def words_of(text: str) -> set[str]:
    """The names and the numbers of a text."""
    found = {m[0] for pattern in (NAME, NUMBER) for m in pattern.finditer(text)}
    return {w for w in found if w.split()[0].lower() not in STOP_WORDS["english"]}


def shared_with_answers(whole: LabelledSet, query_id: str) -> set[str]:
    """Names and numbers of the question that stand in each of its right passages."""
    texts = [whole.corpus[d].full_text for d in whole.relevant(query_id)]
    asked = words_of(whole.queries[query_id].text)
    return {w for w in asked if texts and all(re.search(whole_word(w), t) for t in texts)}


def whole_word(word: str) -> str:
    """A regular expression of the word where no letter or digit stands beside it."""
    return rf"(?<!\w){re.escape(word)}(?!\w)"


def kind(word: str) -> str:
    """What a name or a number may be replaced by: as many words, or as many digits."""
    return re.sub(r"\d", "0", word) if word[0].isdigit() else f"{len(word.split())} words"


def form(
    passage: Passage, shared: set[str], suffix: str, pools: dict[str, list[str]], rng: random.Random
) -> Passage:
    """The passage with another name or number for each shared one."""
    title, text = passage.title, passage.text
    for word in sorted(shared, key=lambda w: (-len(w), w)):
        other = rng.choice([w for w in pools.get(kind(word), []) if w not in shared] or ["Unknown"])
        title, text = (re.sub(whole_word(word), lambda _: other, t) for t in (title, text))  # noqa: B023
    return replace(passage, doc_id=f"{passage.doc_id}-{suffix}", title=title, text=text)


def compare(first: LabelledSet, then: Sequence[LabelledSet], out: Path) -> None:
    """Calibrate on the first set, measure it and the others, and print one line for each."""
    made = calibrate(first, out / first.name, Config(), work=out, overwrite=True)
    model = load(made.folder)
    for labelled in (first, *then):
        measured = evaluate(model, labelled, "test", work=out)
        ours = measured.table["calibrated"]
        pipeline = pipeline_over(labelled, model, Workspace(out))
        asked = grouped(labelled, measured.query_ids).select(measured.query_ids)
        drift = detect_drift(model, asked, pipeline=pipeline)
        mean = measured.confidences["calibrated"].mean()
        print(
            f"of {first.name} on {labelled.name}: {len(labelled.corpus)} passages, {ours.n} "
            f"questions, hit@1 {ours.base_accuracy:.3f} mean confidence {mean:.3f} AUROC "
            f"{ours.auroc:.3f} smECE {ours.smece:.3f} (exact to {ours.smece_floor95:.3f}) log loss "
            f"{ours.log_loss:.3f}, at 0.7 {ours.right_accepted} of {ours.accepted} right. "
            f"{drift.sentence}",
            flush=True,
        )


def main() -> None:
    """Make the two sides of a change, calibrate on one, and measure on both."""
    parser = argparse.ArgumentParser()
    parser.add_argument("change", choices=["growing", "forms", "asked"])
    parser.add_argument("sets", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, default=Path("work/changes"))
    parser.add_argument("--max-queries", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    sets, most = [LabelledSet.read(folder) for folder in options.sets], options.max_queries
    if options.change == "asked":
        one, other = (
            split_in_two(s, asked_ids(s), most, random.Random(options.seed)) for s in sets
        )
        compare(one, [other], options.out)
        compare(other, [one], options.out)
        return
    for whole in sets:
        rng = random.Random(options.seed)
        if options.change == "growing":
            half, both = halved(whole, most, rng)
            compare(half, [both], options.out)
        else:
            plain, forms = with_forms(whole, most, rng)
            compare(plain, [forms], options.out)
            compare(forms, [], options.out)


if __name__ == "__main__":
    main()
