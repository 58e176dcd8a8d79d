// The gateway over HTTP.

import { text, textOr } from "./texts.js";

/** What the gateway refused, or that it could not be reached (`network`). */
export class ApiError extends Error {
  constructor(code, message, data = {}) {
    super(message);
    this.code = code;
    this.data = data;
  }
}

/** The JSON that the gateway answers; throws `ApiError`. */
export async function request(method, path, body) {
  const answer = await reach(path, {
    method, credentials: "same-origin", cache: "no-store", redirect: "error",
    headers: body === undefined ? {} : { "Content-Type": "application/json" },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const found = await answer.json().catch(() => null);
  if (answer.ok && found !== null) return found;
  throw new ApiError(found?.error ?? "internal_error", found?.message ?? `HTTP ${answer.status}`, found ?? {});
}

async function reach(path, options) {
  try {
    return await fetch(path, options);
  } catch {
    throw new ApiError("network", text("error.network"));
  }
}

export const get = (path) => request("GET", path);
export const post = (path, body) => request("POST", path, body);

/** What a person is told of an error. */
export function inWords(error) {
  const { code = error.error, message } = error;
  const rule = (error.data ?? error).details?.rule;
  return textOr(`error.${rule}`, textOr(`error.${code}`, text("error.any"))).replace("{message}", message ?? code ?? "");
}
