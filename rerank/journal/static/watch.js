// The Watch page: how sure answers are day by day, whether they still are right, whether the questions
// have changed, and what waits for a word.
"use strict";

const found = document.getElementById("found");
const WIDE = 640;
const TALL = 160;

load();

async function load() {
  try {
    show(await call("/v1/journal?days=30"));
  } catch (error) {
    found.replaceChildren(make("p", { class: "banner", role: "alert" }, error.message));
  }
}

function show(data) {
  const asked = data.by_day.reduce((sum, day) => sum + day.questions, 0);
  found.replaceChildren(
    make("p", {}, `Questions in the last ${data.days} days: ${asked}.`),
    data.calibrated ? "" : make("p", { class: "banner" },
      "The model is not calibrated: confidences and levels on this page order the questions, and say no more."),
    make("h2", {}, "Are the answers still right?"),
    ...labels(data.model, data.monitors),
    make("h2", {}, "Have the questions changed?"),
    ...drift(data.drift),
    make("h2", {}, "Day by day"),
    make("figure", {}, days(data.by_day),
      make("figcaption", { class: "quiet" },
        "Questions a day (UTC) by level: accepted, low, very low; the line is the mean confidence, from 0 to 1.")),
    table("The same in numbers", ["day (UTC)", "questions", "accepted", "mean confidence"],
      data.by_day.map((day) => [day.day, day.questions, day.accepted, day.confidence.toFixed(2)])),
    ...answers(data.models.filter((one) => one.answers)),
    make("h2", {}, "Answers to review"),
    make("p", { class: "quiet" },
      "Answers below the advisory threshold that nobody has judged yet. Is the first passage right?"),
    ...queue(data.waiting),
    make("p", {}, make("button", { type: "button", onclick: save, id: "export" },
      "Save the judgements of this model as labels"), " ",
      make("span", { class: "quiet" }, "for rerank recalibrate --labels")),
    make("h2", {}, "Documents that came first but were never accepted"),
    data.documents.length
      ? table("Documents", ["document", "questions", "mean confidence"],
        data.documents.map((one) => [one.document, one.questions, one.confidence.toFixed(2)]))
      : make("p", { class: "quiet" }, "There is none that came first for several questions."),
  );
}

/** The sentence of a test, as a warning where it is an alarm. */
function test(sentence, alarm) {
  return make("p", alarm ? { class: "banner", role: "alert" } : {}, sentence);
}

/** What people's labels say of the model of this server. */
function labels(model, monitors) {
  const about = make("p", { class: "quiet" },
    `Two tests on people's labels${model && ` of model ${model}`}: are accepted answers right as often as ` +
    "promised, and is the confidence true? They hold however often one looks.");
  const known = monitors.filter((one) => one.n);
  if (!known.length) return [make("p", {}, "Nobody has judged a first passage of this model yet."), about];
  return [...known.map((one) => test(one.sentence, one.alarm)), about];
}

/** How many generated answers were refused or unsure, and how far sources support them. */
function answers(models) {
  if (!models.length) return [];
  return [make("h2", {}, "Generated answers"),
    table("Generated answers", ["model", "answers", "refused", "low confidence", "sentences that sources support"],
      models.map((one) => [one.model, one.answers, one.refused, one.unsure,
        one.attribution === null ? "" : percent(one.attribution)]))];
}

/** The newest answers of this model beside the questions that it was fitted on. */
function drift(found) {
  if (!found) {
    return [make("p", {}, "There is nothing to compare: the journal has no answer of this model, " +
      "or the model was not fitted on labels of these documents.")];
  }
  const rows = found.moves.map((move) => [move.meaning, move.distance.toFixed(2),
    move.fitted_median.toPrecision(3), move.median.toPrecision(3), percent(move.outside),
    move.p_value < 0.0001 ? "< 0.0001" : move.p_value.toFixed(4)]);
  return [
    test(found.sentence, found.fired),
    make("p", { class: "quiet" },
      `The ${found.new_rows} newest answers of this model beside the ${found.fitted_rows || found.n} ` +
      "questions that it was fitted on, feature by feature; no label is needed. If nothing has " +
      `changed, one look gives a false alarm with a chance of ${percent(found.level, 1)}.`),
    make("details", {}, make("summary", {}, "The features that moved most"),
      table("Features", ["feature", "moved", "median of the fit", "median now", "outside the fit", "p"], rows)),
  ];
}

function queue(waiting) {
  if (!waiting.length) return [make("p", { id: "queue" }, "None is waiting.")];
  return [
    make("label", { for: "filter" }, "Show only those that contain"),
    make("input", { type: "text", id: "filter", oninput: (event) => filter(event.target.value) }),
    make("ul", { class: "queue", id: "queue" }, ...waiting.map(row)),
  ];
}

function row(one) {
  const status = make("span", { class: "quiet", role: "status" });
  const judge = (right) => async (event) => {
    try {
      await call("/v1/feedback", { id: one.id, right });
      for (const button of event.target.parentNode.querySelectorAll("button")) {
        button.setAttribute("aria-pressed", String(button === event.target));
      }
      status.textContent = "recorded";
    } catch (error) {
      status.textContent = error.message;
    }
  };
  const link = one.question
    ? make("a", { href: `/?q=${encodeURIComponent(one.question)}` }, one.question)
    : make("span", { class: "quiet" }, "the text was left out");
  return make("li", {},
    make("div", {}, levelBadge(one), " ", link,
      make("span", { class: "quiet" }, one.times > 1 ? ` asked ${one.times} times` : "")),
    make("div", { class: "quiet" },
      `${new Date(1000 * one.time).toLocaleString()}: ${one.document || one.doc_id || "nothing found"}`),
    make("div", { class: "feedback" },
      make("button", { type: "button", "aria-pressed": "false", onclick: judge(true) }, "Right"),
      make("button", { type: "button", "aria-pressed": "false", onclick: judge(false) }, "Wrong"), status));
}

function filter(text) {
  for (const item of document.getElementById("queue").children) {
    item.hidden = !item.textContent.toLowerCase().includes(text.toLowerCase());
  }
}

async function save(event) {
  const beside = event.target.nextElementSibling;
  try {
    const answer = await send("/v1/journal/labels");
    const link = make("a", { href: URL.createObjectURL(await answer.blob()), download: "labels.jsonl" });
    link.click();
    URL.revokeObjectURL(link.href);
    const leftOut = Number(answer.headers.get("X-Labels-Left-Out"));
    beside.textContent = "for rerank recalibrate --labels" + (leftOut
      ? `; left out, because the journal has no text of their questions: ${leftOut}` : "");
  } catch (error) {
    beside.textContent = error.message;
  }
}

/** One bar per day, its parts stacked, and the mean confidence over them. */
function days(rows) {
  const most = Math.max(1, ...rows.map((day) => day.questions));
  const step = (WIDE - 40) / Math.max(rows.length, 7);
  const up = (share) => TALL - 20 - share * (TALL - 30);
  const bars = rows.flatMap((day, i) => {
    const parts = [["high", day.accepted], ["medium", day.levels.LOW || 0], ["low", day.levels.VERY_LOW || 0]];
    let below = 0;
    return parts.filter(([, n]) => n).map(([kind, n]) => {
      below += n;
      return draw("rect", {
        class: `day ${kind}`, x: 32 + i * step, width: 0.8 * step,
        y: up(below / most), height: up(0) - up(n / most),
      }, draw("title", {}, `${day.day}: ${day.questions} questions, ${day.accepted} accepted`));
    });
  });
  const line = rows.map((day, i) => `${32 + (i + 0.4) * step},${up(day.confidence)}`).join(" ");
  return draw("svg", { viewBox: `0 0 ${WIDE} ${TALL}`, role: "img", "aria-label": "Questions a day", class: "long" },
    draw("text", { x: 26, y: up(1) + 4, "text-anchor": "end" }, String(most)),
    draw("text", { x: 26, y: up(0) + 4, "text-anchor": "end" }, "0"),
    ...bars,
    draw("polyline", { class: "curve", points: line }),
    ...rows.map((day, i) => draw("circle", { class: "dot", cx: 32 + (i + 0.4) * step, cy: up(day.confidence), r: 4 })),
    ...(rows.length ? [draw("text", { x: 32, y: TALL - 4 }, rows[0].day)] : []),
    ...(rows.length > 3
      ? [draw("text", { x: 32 + (rows.length - 0.2) * step, y: TALL - 4, "text-anchor": "end" }, rows.at(-1).day)]
      : []));
}
