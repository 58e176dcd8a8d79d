// A conversation as the gateway keeps it for all pages of a person, and what this page makes of it. No I/O here.

/** What is kept of `records`; the stream that writes an answer stays in its browser. */
export function toShared(records) {
  return {
    answers: records.map(({ id, question, at, use, answer }) => ({
      id, question, at, ...(use ? { use } : {}), answer: { ...answer, progress: null, calls: [...answer.calls.values()] },
    })),
  };
}

/** The records of `content`, in the conversation `conversation`. */
export function fromShared(conversation, content) {
  const answers = Array.isArray(content?.answers) ? content.answers : [];
  return answers.map(({ answer, ...record }) => ({
    ...record, conversation, kept: answer.run ? { run: answer.run } : {},
    answer: { ...answer, calls: new Map((answer.calls ?? []).map((call) => [call.id, call])) },
  }));
}

/** `theirs` with those of `mine` that they lack, or that this page (`isHere`) writes; in the order of the questions. */
export function joined(mine, theirs, isHere) {
  const found = new Map(theirs.map((record) => [record.id, record]));
  for (const record of mine) if (!found.has(record.id) || isHere(record)) found.set(record.id, record);
  return [...found.values()].sort((one, other) => one.at - other.at);
}
