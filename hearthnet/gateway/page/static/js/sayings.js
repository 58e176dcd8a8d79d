// What the page announces to those who hear it rather than see it, and what it says of errors.

export const SAYINGS = {
  "say.signed_in": ["Signed in.", "Angemeldet."],
  "say.asked": ["Asked. The answer is being written.", "Gefragt. Die Antwort wird geschrieben."],
  "say.answered": ["The answer is complete: {words}", "Die Antwort ist vollständig: {words}"],
  "say.call": ["{name}: {status}", "{name}: {status}"],
  "say.waits": ["{name} waits for your decision.", "{name} wartet auf Ihre Entscheidung."],
  "say.found": ["Posts found: {count}", "Gefundene Aushänge: {count}"],

  "error.any": ["That did not work: {message}", "Das hat nicht geklappt: {message}"],
  "error.network": ["The gateway cannot be reached. Is the node running?", "Das Gateway ist nicht zu erreichen. Läuft der Knoten?"],
  "error.unauthorized": ["You may not do that here: {message}", "Das dürfen Sie hier nicht: {message}"],
  "error.token_expired": ["Your sign-in has run out. Open a new link.", "Ihre Anmeldung ist abgelaufen. Öffnen Sie einen neuen Link."],
  "error.token_scope_insufficient": ["Your sign-in does not cover that: {message}", "Ihre Anmeldung reicht dafür nicht: {message}"],
  "error.not_found": ["Nobody offers that now: {message}", "Das bietet gerade niemand an: {message}"],
  "error.expired": ["That came too late: {message}", "Das kam zu spät: {message}"],
  "error.timeout": ["No answer came in time. Try again.", "Es kam nicht rechtzeitig eine Antwort. Versuchen Sie es noch einmal."],
  "error.partition": ["A part of the mesh cannot be reached. Try again in a moment.", "Ein Teil des Netzes ist nicht zu erreichen. Versuchen Sie es gleich noch einmal."],
  "error.capacity_exceeded": ["Everything is busy. Try again in a moment.", "Alles ist ausgelastet. Versuchen Sie es gleich noch einmal."],
  "error.rate_limited": ["Too much at once. Wait a moment.", "Zu viel auf einmal. Warten Sie einen Moment."],
  "error.code_used": [
    "This link was used already, or is too old. Get a new one.",
    "Dieser Link wurde schon benutzt oder ist zu alt. Holen Sie einen neuen.",
  ],
};
