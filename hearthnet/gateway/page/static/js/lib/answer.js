// What a run has said so far, built from its frames: the same frames give the same answer. No I/O here.

/** An answer before its first frame. */
export function blank() {
  return {
    state: "waiting", segments: [], calls: new Map(), notices: [], error: null, done: null, run: "", happened: null,
  };
}

const RULES = {
  opened: (answer, { run }) => { if (run) answer.run = run; },
  iteration: (answer, { iteration }) => startSegment(answer, iteration),
  token: (answer, { text }) => { segment(answer).text += text; },
  tool_call: (answer, { id, name, arguments: args }) => { Object.assign(call(answer, id, name), { arguments: args }); },
  tool_status: (answer, data) => {
    Object.assign(call(answer, data.tool_call_id, data.name), { status: data.status });
  },
  tool_started: (answer, data) => {
    Object.assign(call(answer, data.tool_call_id, data.name), {
      arguments: data.arguments, pending: null, status: "running",
    });
  },
  tool_progress: (answer, { tool_call_id: id, ...progress }) => { call(answer, id).progress = progress; },
  tool_result: (answer, data) => {
    Object.assign(call(answer, data.tool_call_id, data.name), {
      status: data.status, ms: data.ms, content: data.content, truncated: Boolean(data.truncated), pending: null,
      progress: null,
    });
  },
  confirmation_required: (answer, data) => wait(answer, data),
  suspended: (answer, data) => {
    answer.run = data.run;
    answer.state = "suspended";
    answer.happened = data.happened ?? null;
    for (const pending of data.pending ?? []) wait(answer, pending);
  },
  snapshot: (answer, data) => sumUp(answer, data),
  notice: (answer, { text }) => { answer.notices.push({ text }); },
  progress: (answer, data) => { answer.progress = data; },
  done: (answer, data) => {
    answer.state = "done";
    answer.done = data;
    answer.happened = data.happened ?? null;
    answer.run = data.run || answer.run;
  },
  error: (answer, data) => {
    answer.state = "error";
    answer.error = data;
    answer.happened = data.details?.happened ?? null;
  },
};

/** Takes one frame into `answer`; an event that this version does not know changes nothing. */
export function apply(answer, { event, data }) {
  if (answer.state === "waiting" && event !== "opened") answer.state = "running";
  if (event !== "progress") answer.progress = null;
  if (Object.hasOwn(RULES, event)) RULES[event](answer, data ?? {});
  return answer;
}

/** The run goes on after it was suspended or its process ended. */
export function reopen(answer) {
  Object.assign(answer, { state: "waiting", error: null, done: null, happened: null });
}

/** A turn that is asked for again says everything again. */
function startSegment(answer, iteration) {
  answer.segments = answer.segments.filter((one) => one.iteration < iteration);
  answer.segments.push({ iteration, text: "", calls: [] });
  answer.state = "running";
}

function segment(answer) {
  if (answer.segments.length === 0) answer.segments.push({ iteration: 1, text: "", calls: [] });
  return answer.segments.at(-1);
}

function call(answer, id, name = "") {
  if (!answer.calls.has(id)) {
    answer.calls.set(id, { id, name, arguments: null, status: "pending", pending: null });
  }
  const known = answer.segments.some((one) => one.calls.includes(id));
  if (!known) segment(answer).calls.push(id);
  return answer.calls.get(id);
}

function wait(answer, pending) {
  Object.assign(call(answer, pending.tool_call_id, pending.name), {
    pending, arguments: pending.arguments, status: "waiting",
  });
}

/** What was missed, in one piece, takes the place of what was had. */
function sumUp(answer, { text, truncated, calls, pending }) {
  answer.segments = [{ iteration: 0, text: truncated ? `… ${text}` : text, calls: [] }];
  for (const one of calls ?? []) {
    const { tool_call_id: id, name, text: _, ...rest } = one;
    Object.assign(call(answer, id, name), rest, { pending: null });
  }
  for (const one of pending ?? []) wait(answer, one);
}

/** The calls that wait for a yes, in order. */
export const waiting = (answer) => [...answer.calls.values()].filter((one) => one.pending);

/** The whole text, as the next question's history has it. */
export const words = (answer) => answer.segments.map((one) => one.text).filter(Boolean).join("\n\n");

/** Whether nothing more comes unless somebody does something. */
export const over = (answer) => ["done", "error", "suspended"].includes(answer.state);

/** The documents that searches found, each once: `{title, heading, date, sources}`. */
export function sources(answer) {
  const found = new Map();
  for (const { content } of answer.calls.values()) {
    const chunks = content?.chunks;
    for (const chunk of Array.isArray(chunks) ? chunks : []) {
      const about = chunk?.metadata;
      if (!about) continue;
      const title = String(about.doc_title || "");
      const key = String(about.doc_cid || title);
      if (!found.has(key)) found.set(key, { title, heading: about.heading, date: about.date, sources: about.sources ?? [] });
    }
  }
  return [...found.values()];
}
