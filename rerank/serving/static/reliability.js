// The Reliability page: is the confidence true, and what does a threshold buy?
"use strict";

const found = document.getElementById("found");
const SIZE = 320;
const EDGE = 48; // room for the names of the axes
const REST = 14;
const x = (v) => EDGE + v * (SIZE - EDGE - REST);
const y = (v) => SIZE - EDGE - v * (SIZE - EDGE - REST);

call("/v1/reliability").then(show, (error) => {
  found.replaceChildren(make("p", { class: "banner", role: "alert" }, error.message));
});

function show(data) {
  const rows = data.curves.thresholds;
  if (!rows.length) {
    found.replaceChildren(...data.headline.map((line) => make("p", {}, line)),
      make("p", { class: "banner" },
        "There are no curves to draw: rerank calibrate measures them, on labelled queries."),
      ...origin(data));
    return;
  }
  const here = draw("line", { class: "here", y1: y(0), y2: y(1) });
  const [head, ...body] = data.comparison;
  found.replaceChildren(
    ...data.headline.map((line) => make("p", {}, line)),
    make("div", { class: "two" },
      make("figure", {}, diagram(data.curves.bins),
        make("figcaption", { class: "quiet" },
          "Reliability: how often answers of about one confidence were right. On the dashed line " +
          "the confidence is true; the grey bars show where 95% of dots fall by chance if it is.")),
      make("figure", {}, coverage(rows, here),
        make("figcaption", { class: "quiet" },
          "Risk against coverage: the share of wrong answers among those accepted."))),
    make("label", { for: "threshold" }, "Accept answers with at least this confidence"),
    ...slider(rows, data.threshold, here),
    make("h2", {}, "Compared with other ways to get a confidence"),
    make("p", { class: "quiet" },
      "AUROC: how well right answers are told from wrong ones (1 is best, 0.5 is chance). Brier and smECE: the " +
      `error of the confidence (0 is best). Then how many answers a threshold of ${data.threshold} accepts, how ` +
      "many of these are right, and the least share that is right with 95% confidence."),
    table("Comparison", head.map((cell) => cell || "confidence by"), body, "calibrated"),
    ...origin(data),
  );
}

/** A slider over the thresholds, which moves the line `here`, and what each would accept. */
function slider(rows, threshold, here) {
  const all = rows[0].rows;
  const sentence = make("p", { id: "accepts", role: "status" });
  const input = make("input", {
    type: "range", id: "threshold", min: 0, max: rows.length - 1, step: 1,
    value: Math.round(threshold * (rows.length - 1)),
  });
  const update = () => {
    const row = rows[Number(input.value)];
    sentence.textContent = row.rows
      ? `From ${row.threshold.toFixed(2)} up, ${row.rows} of ${all} answers are accepted ` +
        `(${percent(row.rows / all)}); ${row.right} of these were right ` +
        `(${percent(row.right / row.rows, 1)}, at least ${percent(row.lower95, 1)} with 95% confidence, for a threshold chosen beforehand).`
      : `From ${row.threshold.toFixed(2)} up, no answer is accepted.`;
    input.setAttribute("aria-valuetext", row.threshold.toFixed(2));
    here.setAttribute("x1", x(row.rows / all));
    here.setAttribute("x2", x(row.rows / all));
  };
  input.addEventListener("input", update);
  update();
  return [input, sentence];
}

/** What is promised, and what the model was made from. */
function origin(data) {
  return [
    make("h2", {}, "The certificate"),
    make("p", {}, data.certificate),
    make("h2", {}, "What the model was made from"),
    scrolled("What the model was made from", make("table", {},
      ...Object.entries(data.made_from).map(([part, rows]) => make("tbody", {},
        make("tr", {}, make("th", { scope: "rowgroup", colspan: 2, class: "part" }, part)),
        ...Object.entries(rows).map(([name, value]) => make("tr", {},
          make("th", { scope: "row" }, name), make("td", { class: "words" }, String(value)))))))),
  ];
}

function frame(across, up) {
  const ticks = [0, 0.5, 1].flatMap((v) => [
    draw("text", { x: x(v), y: SIZE - EDGE + 18, "text-anchor": "middle" }, v.toFixed(1)),
    draw("text", { x: EDGE - 6, y: y(v) + 4, "text-anchor": "end" }, v.toFixed(1)),
  ]);
  return [
    draw("rect", { class: "axis", x: x(0), y: y(1), width: x(1) - x(0), height: y(0) - y(1) }),
    draw("text", { x: x(0.5), y: SIZE - 8, "text-anchor": "middle" }, across),
    draw("text", { x: 12, y: y(0.5), "text-anchor": "middle", transform: `rotate(-90 12 ${y(0.5)})` }, up),
    ...ticks,
  ];
}

function diagram(bins) {
  const bands = bins.map((bin) => draw("line", { class: "band", x1: x(bin.confidence),
    x2: x(bin.confidence), y1: y(bin.low), y2: y(bin.high) }));
  const dots = bins.map((bin) => draw("circle",
    { class: "dot", cx: x(bin.confidence), cy: y(bin.accuracy), r: 5 },
    draw("title", {}, `confidence ${bin.confidence.toFixed(2)}, ${percent(bin.accuracy)} of ${bin.rows} right`)));
  return draw("svg", { viewBox: `0 0 ${SIZE} ${SIZE}`, role: "img", "aria-label": "Reliability diagram" },
    ...frame("confidence", "share right"),
    draw("line", { class: "ideal", x1: x(0), y1: y(0), x2: x(1), y2: y(1) }),
    ...bands, ...dots);
}

function coverage(rows, here) {
  const all = rows[0].rows;
  const points = rows.filter((row) => row.rows)
    .map((row) => `${x(row.rows / all)},${y(1 - row.right / row.rows)}`);
  return draw("svg", { viewBox: `0 0 ${SIZE} ${SIZE}`, role: "img", "aria-label": "Risk against coverage" },
    ...frame("share accepted", "share wrong of these"),
    draw("polyline", { class: "curve", points: points.join(" ") }), here);
}
