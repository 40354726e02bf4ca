// The Ask page: a question, its answer or refusal, how sure it is and why, and its sources.
"use strict";

const found = document.getElementById("found");
const question = document.getElementById("question");
const STOPPED = {
  threshold: "they are enough",
  max_k: "the most that are allowed",
  least_gain: "the next ones would add too little",
  no_more: "there are no more",
  no_results: "none is similar enough to the question",
  no_passages: "no passage was found",
};

document.getElementById("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  ask(question.value.trim());
});
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !["INPUT", "TEXTAREA"].includes(document.activeElement.tagName)) {
    event.preventDefault();
    question.focus();
    question.select();
  }
});
const asked = JSON.parse(sessionStorage.getItem("asked") || "[]");
showHistory();
// a link may hold a question; the reader asks it, not whoever made the link
question.value = new URLSearchParams(location.search).get("q") || "";

let latest = 0; // number of the newest question; answers of older ones come too late

async function ask(text) {
  if (!text) return;
  const mine = ++latest;
  question.value = text;
  found.replaceChildren(make("p", { class: "quiet" }, "Searching…"));
  found.setAttribute("aria-busy", "true");
  try {
    let data = {};
    for await (const part of lines(await send("/v1/ask", { query: text, stream: true }))) {
      if (mine !== latest) return;
      show(data = { ...data, ...part });
    }
    asked.splice(0, asked.length, text, ...asked.filter((one) => one !== text).slice(0, 9));
    sessionStorage.setItem("asked", JSON.stringify(asked));
    showHistory();
  } catch (error) {
    if (mine !== latest) return;
    found.replaceChildren(make("p", { class: "banner", role: "alert" }, `No answer: ${error.message}`));
  }
  found.removeAttribute("aria-busy");
}

/** The objects of an answer that comes line by line. */
async function* lines(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    const whole = (rest + part.value).split("\n");
    rest = whole.pop();
    yield* whole.map((line) => JSON.parse(line));
  }
}

function showHistory() {
  document.getElementById("history").replaceChildren(...asked.map((text) =>
    make("li", {}, make("button", { type: "button", onclick: () => ask(text), title: text }, text))));
}

function show(data) {
  const { assessment, signals } = data;
  const failed = data.message || (data.answer && data.answer.error);
  const answer = data.answer && !failed ? data.answer : { sources: [], refused: false };
  const sources = data.passages.map((passage, i) => source(passage, i, answer.sources, assessment.calibrated));
  const first = answer.refused ? 0 : Math.max(data.k, 3);
  found.replaceChildren(...[
    make("h2", {}, answer.refused ? "No answer" : "Answer"),
    answer.refused ? make("span", { class: "badge low", id: "badge" }, "REFUSED") : badge(assessment),
    answer.refused ? refusal(data) : banner(assessment),
    failed
      ? make("p", { class: "banner", role: "alert" }, `No answer: ${failed}`)
      : data.answer
        ? make("div", { class: "answer", id: "answer" }, answer.answer)
        : make("p", { class: "quiet" }, "Writing an answer…"),
    answer.refused ? null : make("p", { class: "quiet" },
      `Passages taken: ${data.k} of ${data.passages.length}; ${STOPPED[data.stop_reason]}.` +
      (assessment.calibrated
        ? ` The probability that one of the first ${data.sufficiency_k} is right is ` +
          `${percentReached(assessment.sufficiency)}.`
        : " Without labels the bars show the order of the passages only.")),
    data.feedback && data.answer ? feedback(data.id) : null,
    first ? make("h2", {}, "Sources") : null,
    ...sources.slice(0, first),
    sources.length > first
      ? make("details", {}, make("summary", {}, first ? "Less likely passages" : "What was found, and not used"),
        ...sources.slice(first))
      : null,
    make("h2", {}, answer.refused ? "Why no answer?" : assessment.calibrated ? "Why this confidence?" : "Why this passage first?"),
    ...why(signals, data.recommendations),
  ].filter(Boolean));
}

function badge(assessment) {
  return assessment.calibrated
    ? levelBadge(assessment, { id: "badge" })
    : make("span", { class: "badge", id: "badge" }, "NOT CALIBRATED");
}

function banner(assessment) {
  if (assessment.accepted) return null;
  const why = assessment.calibrated
    ? `confidence ${percentReached(assessment.confidence)}`
    : "not calibrated: these documents have no labels yet";
  return make("p", { class: "banner", id: "banner", role: "note" },
    `Advisory only - ${why}. Verify with primary sources.`);
}

function refusal({ answer }) {
  const why = answer.sufficiency === null || !answer.calibrated
    ? "The passages that were found do not hold an answer."
    : `The probability that the passages found hold an answer is ${percentReached(answer.sufficiency)}.`;
  return make("p", { class: "banner", id: "banner", role: "note" }, why);
}

function source(passage, i, cited, calibrated) {
  const own = cited.filter((one) => one.doc_id === passage.doc_id);
  const place = [passage.document, passage.heading, passage.page && `p. ${passage.page}`];
  const scores = passage.scores ||  // of another search system, by stage
    { "cross-encoder": passage.logit, BM25: passage.bm25, cosine: passage.dense };
  const stages = Object.entries(scores)
    .map(([stage, score]) => `${stage} ${score === null ? "not found or not scored" : score.toFixed(2)}`).join(", ");
  const text = words(passage, cited);
  const open = passage.row === null ? undefined : openDocument(passage, cited, text);
  return make("details", { class: "source", ...(open && { ontoggle: open }) },
    make("summary", {},
      make("strong", {}, own.length ? own[0].id : `${i + 1}.`),
      make("span", { class: "place" }, place.filter(Boolean).join(", ")),
      make("meter", { min: 0, max: 1, value: passage.relevance, title: "relevance" }),
      calibrated ? make("span", {}, percentReached(passage.relevance)) : null,
      own.length ? make("span", { class: "quiet" }, "quoted") : null),
    text,
    make("p", { class: "quiet" }, `${passage.doc_id}: ${stages}`));
}

function why(signals, recommendations) {
  if (!signals.length) return [make("p", {}, "Nothing was found.")];
  const told = signals.filter((signal) => signal.told);
  const most = Math.max(1, ...told.map((signal) => Math.abs(signal.log_odds)));
  const rows = told.map((signal) => {
    const way = signal.log_odds > 0 ? "for" : "against";
    return make("li", {},
      make("span", {}, signal.name.replaceAll("_", " ")),
      bar(signal.log_odds / most, way),
      make("span", { class: "meaning" }, `${way}: ${signal.meaning}`));
  });
  return [
    make("p", { class: "quiet" },
      "What speaks for the first passage and what against it, compared with a usual question; " +
      "the longer the bar, the more it counts."),
    make("ul", { class: "bars" }, ...rows),
    ...(recommendations.length
      ? [make("h2", {}, "What may help"), make("ul", {}, ...recommendations.map((sentence) => make("li", {}, sentence)))]
      : []),
  ];
}

/** A bar to the right of its middle for what speaks for, to the left for what speaks against. */
function bar(share, way) {
  const width = Math.max(1, 48 * Math.abs(share));
  return draw("svg", { viewBox: "0 0 100 12", class: "bar", "aria-hidden": "true" },
    draw("line", { class: "axis", x1: 50, x2: 50, y1: 0, y2: 12 }),
    draw("rect", { class: way, x: share < 0 ? 50 - width : 50, y: 2, width, height: 8 }));
}

function feedback(id) {
  const status = make("span", { class: "quiet", role: "status" });
  const button = (right, text) => make("button", {
    type: "button", "aria-pressed": "false",
    onclick: async (event) => {
      try {
        await call("/v1/feedback", { id, right });
        for (const other of event.target.parentNode.querySelectorAll("button")) {
          other.setAttribute("aria-pressed", String(other === event.target));
        }
        status.textContent = "Thank you, it is recorded.";
      } catch (error) {
        status.textContent = `Not recorded: ${error.message}`;
      }
    },
  }, text);
  return make("div", { class: "feedback" }, make("span", {}, "Is the first passage right?"),
    button(true, "Right"), button(false, "Wrong"), status);
}
