// A page of another origin, by the types of the server's own OpenAPI: it compiles, or they differ.
import type { components, paths } from "./api";

type Search = paths["/v1/search"]["post"];
type Asked = Search["requestBody"]["content"]["application/json"];
type Answer = Search["responses"][200]["content"]["application/json"];
type Level = components["schemas"]["SearchResponse"]["level"];

const COLOURS: Record<Level, string> = { HIGH: "green", MEDIUM: "olive", LOW: "orange", VERY_LOW: "red" };
const DO: Record<Answer["verdict"], string> = { SUFFICIENT: "answer", PARTIAL: "warn", INSUFFICIENT: "refuse" };
const USED: Record<Answer["action"], boolean> = {
  "use directly and cite": true,
  "use with caution, verify": true,
  "advisory only, verification required": false,
  "do not use, flag for review": false,
};

async function search(server: string, asked: Asked): Promise<Answer> {
  const answer = await fetch(`${server}/v1/search`, {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(asked),
  });
  if (!answer.ok) throw new Error(((await answer.json()) as components["schemas"]["ErrorResponse"]).message);
  return (await answer.json()) as Answer;
}

async function main(): Promise<void> {
  const named = new URLSearchParams(location.search);
  try {
    const found: Answer = await search(named.get("server") ?? "", { query: named.get("q") ?? "", top_n: 3 });
    const first = found.ranking[0];
    document.body.style.color = COLOURS[found.level];
    document.body.textContent = [DO[found.verdict], USED[found.action], first?.doc_id, found.confidence].join(" ");
  } catch (error) {
    document.body.textContent = `refused: ${(error as Error).message}`;
  }
}
main();
